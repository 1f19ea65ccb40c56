"""The programs `run` and `smoke` with their modules as a reproducible archive for hosts."""

import io
import tarfile
from pathlib import Path

_EXECUTABLE, _PLAIN = 0o755, 0o644


def archive_of(folder: Path) -> bytes:
    """Return a tar of a folder's files, sorted, without owner and time: equal files change nothing on a host."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files:
            data = path.read_bytes()
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mode = len(data), _EXECUTABLE if path.stat().st_mode & 0o100 else _PLAIN
            archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()
