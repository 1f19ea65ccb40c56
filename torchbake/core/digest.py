"""Digests over several texts, of a file, and of what is written; how a digest is shown."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def digest(parts: Iterable[str]) -> str:
    """The sha256 over texts, each with its length before it, so that no two lists run together."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return f"sha256:{total.hexdigest()}"


def file_digest(path: Path) -> str:
    """The sha256 of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


class Digested:
    """Hands on what is written to it, hashes and counts it."""

    def __init__(self, file: Any) -> None:
        self._file, self._sha256, self.size = file, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """Of all that was written so far."""
        return f"sha256:{self._sha256.hexdigest()}"

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        self._file.write(data)
        self.size += len(data)
        return len(data)


def short_digest(digest: str) -> str:
    """Enough of a digest to tell it from others: its first 12 digits, as docker shows them."""
    return digest.removeprefix("sha256:")[:12]
