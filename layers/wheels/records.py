"""The RECORD of an installed wheel.

https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

import base64
import csv
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path


def records(root: Path) -> Iterator[tuple[str, Path, list[list[str]]]]:
    """Each installed wheel: its normalised name, its RECORD and the rows of that."""
    for record in sorted(root.glob("*.dist-info/RECORD")):
        name = re.sub(r"[-_.]+", "-", record.parent.name.split("-")[0]).lower()
        with record.open(newline="") as file:
            yield name, record, list(csv.reader(file))


def record_row(root: Path, name: str) -> list[str]:
    """A file's row of a RECORD: its name below ``root``, its hash and its size in bytes."""
    with (root / name).open("rb") as file:
        digest = base64.urlsafe_b64encode(hashlib.file_digest(file, "sha256").digest()).rstrip(b"=")
    return [name, f"sha256={digest.decode()}", str((root / name).stat().st_size)]


def write_rows(record: Path, rows: Iterable[list[str]]) -> None:
    """Write a RECORD anew, in the order of its files' names."""
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(sorted(rows))
