"""The RECORD of an installed wheel.

https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

import base64
import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path


def records(root: Path) -> Iterator[tuple[Path, list[list[str]]]]:
    """Yield the RECORD of each installed wheel, and its rows."""
    for record in sorted(root.glob("*.dist-info/RECORD")):
        with record.open(newline="") as file:
            yield record, list(csv.reader(file))


def record_row(root: Path, name: str) -> list[str]:
    """Return a file's row of a RECORD: its name below ``root``, its hash and its size in bytes."""
    return data_row(name, (root / name).read_bytes())


def data_row(name: str, data: bytes) -> list[str]:
    """Return the row of a file with the content ``data``."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return [name, f"sha256={digest.decode()}", str(len(data))]


def sorted_rows(rows: Iterable[list[str]]) -> str:
    """Return the text of a RECORD, in the order of its files' names."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(sorted(rows))
    return text.getvalue()
