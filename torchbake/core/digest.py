"""SHA-256 digests of texts, of files and of written data, and their short form."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any


def digest(parts: Iterable[str]) -> str:
    """Return the SHA-256 over texts. Each has its length before it, so that no two lists have one digest."""
    return PartialDigest().digest(parts)


class PartialDigest:
    """Texts that are hashed once, as the beginning of several digests."""

    def __init__(self, parts: Iterable[str] = ()) -> None:
        self._sha256 = hashlib.sha256()
        _add(self._sha256, parts)

    def digest(self, more: Iterable[str]) -> str:
        """Return the digest over these texts and ``more``."""
        total = self._sha256.copy()
        _add(total, more)
        return f"sha256:{total.hexdigest()}"


def _add(total: "hashlib._Hash", parts: Iterable[str]) -> None:
    for part in parts:
        data = part.encode()
        total.update(len(data).to_bytes(8, "big") + data)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def code_digest(modules: Iterable[ModuleType], *more: str) -> str:
    """Return 16 digits of the SHA-256 over the code of modules and ``more`` texts, in place of a version number."""
    parts = [*(text.encode() for text in more), *(Path(module.__file__ or "").read_bytes() for module in modules)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


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
