"""SHA-256 digests of texts, of files and of written data, and their short form."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def digest(parts: Iterable[str]) -> str:
    """Return the SHA-256 over texts. Each has its length before it, so that no two lists have one digest."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return f"sha256:{total.hexdigest()}"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


class DigestWriter:
    """A writer that hashes and counts the data that it passes on to ``file``."""

    def __init__(self, file: Any) -> None:
        self._file, self._sha256, self.size = file, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """The SHA-256 of the data written so far."""
        return f"sha256:{self._sha256.hexdigest()}"

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        self._file.write(data)
        self.size += len(data)
        return len(data)


def short_digest(digest: str) -> str:
    """Return the first 12 digits of a digest, as docker shows them."""
    return digest.removeprefix("sha256:")[:12]
