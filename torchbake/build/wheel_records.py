"""The RECORD of a locked wheel, read from an archive that has the hash of the lock.

The RECORD inside an image is no proof: trimming changes it, and so can an attacker who changes a file. So the packer
stores the RECORD of each archive. If a RECORD is not stored, the archive is fetched again.
Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

import base64
import csv
import io
import json
import re
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torchbake.build.wheel_fetch import FetchedArchive, fetch_wheel, find_archive, not_found
from torchbake.build.wheelhouse import rank_of
from torchbake.core.files import write_text
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin
from torchbake.matrix.spec import AMD64

Hashes: TypeAlias = Mapping[str, str]  # sha256 in hexadecimal, by the names of a wheel's files
_PREFIX = "sha256="
_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")


@dataclass(frozen=True, kw_only=True)
class WheelRecords:
    """RECORDs by the hashes of their archives, kept in ``folder``, which need not exist."""

    folder: Path

    def keep(self, wheel: FetchedArchive) -> Hashes:
        """Keep the RECORD of an archive. Raises BuildError if it has none."""
        hashes = read_record(wheel.path, wheel.name)
        write_text(self._path(wheel.digest), json.dumps({"wheel": wheel.name, "files": hashes}) + "\n")
        return hashes

    def find(self, pin: Pin, python: str, platform: str = AMD64) -> Hashes | None:
        """Find the hashes of a pin's wheel for an image's ``python`` and platform; None if its RECORD is not kept."""
        records = [record for digest in pin.hashes if (record := self._read(digest))]
        ranked = [
            (rank, files) for name, files in records if (rank := rank_of(name, pin, python, platform)) is not None
        ]
        return max(ranked, key=lambda one: one[0])[1] if ranked else None

    def find_or_fetch(
        self, pin: Pin, pip: PipConfig, python: str, indexes: Iterable[str], stopping: threading.Event,
        *, platform: str = AMD64,
    ) -> Hashes:  # fmt: skip
        """Find the hashes, or fetch the archive: the whole of it, since a part of it has no hash in the lock.

        Raises BuildError if no source gives the archive, and KeyboardInterrupt once ``stopping`` is set.
        """
        if matches := self.find(pin, python, platform):
            return matches
        archive = find_archive(pin, pip, python, indexes, platform)
        if archive is None:
            raise not_found(pin)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=".fetching-", dir=self.folder) as folder,
            fetch_wheel(archive, pip, Path(folder, "wheel.whl"), stopping) as wheel,
        ):
            return self.keep(wheel)

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest.removeprefix('sha256:')}.json"

    def _read(self, digest: str) -> tuple[str, Hashes] | None:
        try:
            entry = json.loads(self._path(digest).read_text())
            return str(entry["wheel"]), {str(name): str(hashed) for name, hashed in entry["files"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):  # not there, or damaged
            return None


def read_record(wheel: Path, name: str) -> Hashes:
    """Read the hashes in the RECORD of an archive; ``name`` is for messages. Raises BuildError if it has none."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            (record,) = (file for file in archive.namelist() if _RECORD.fullmatch(file))
            rows = [*csv.reader(io.StringIO(archive.read(record).decode()))]
    except (zipfile.BadZipFile, ValueError) as error:
        raise BuildError(f"{name}: has no RECORD that can be read: {error}.") from None
    hashes = {row[0]: row[1].removeprefix(_PREFIX) for row in rows if len(row) > 1 and row[1].startswith(_PREFIX)}
    return {file: base64.urlsafe_b64decode(f"{value}==").hex() for file, value in hashes.items()}  # without padding
