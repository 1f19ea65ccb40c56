"""Layers as they are stored: tar archives without compression, or compressed by gzip or zstd.

https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import zstandard
from isal import igzip, isal_zlib

LOOK = 4  # bytes at the begin of a layer that identify its compression
_ISAL_ERROR = cast(type[Exception], isal_zlib.error)  # its stub says that this is no class
UNREADABLE = (tarfile.TarError, zlib.error, _ISAL_ERROR, zstandard.ZstdError, gzip.BadGzipFile, EOFError)
_GZIP = b"\x1f\x8b"
# A frame, or one to be skipped, as some tools write one first: RFC 8878, 3.1.
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_AT_ONCE = 2**20


def is_compressed(begin: bytes) -> bool:
    """Return whether a file that begins with these bytes, at least LOOK, is compressed by gzip or zstd."""
    return begin.startswith(_GZIP) or _ZSTD.match(begin) is not None


@contextmanager
def uncompressed(file: IO[bytes], begin: bytes) -> Iterator[IO[bytes]]:
    """Open the tar archive in a file that begins with these LOOK bytes, and whose position is before them.

    The file must have `readinto`, as all files of Python have.
    Reading a damaged archive raises one of UNREADABLE.
    """
    if begin.startswith(_GZIP):
        with cast(Any, igzip).IGzipFile(fileobj=file) as stream:  # three times as fast as Python's own
            yield cast(IO[bytes], stream)
    elif _ZSTD.match(begin):
        unpacker = zstandard.ZstdDecompressor(max_window_size=2**31)
        with unpacker.stream_reader(file, read_size=_AT_ONCE, read_across_frames=True, closefd=False) as stream:
            yield cast(IO[bytes], stream)
    else:
        yield file


class DigestReader:
    """A file that computes its digest while it is read, as a truncated compressed stream can look complete.

    ``begin`` are its first LOOK bytes.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self.size = file, hashlib.sha256(), 0
        self.begin = self._ahead = self._next(LOOK)

    def read(self, size: int = -1) -> bytes:
        if not self._ahead:
            return self._next(size)
        end = len(self._ahead) if size < 0 else size
        ahead, self._ahead = self._ahead[:end], self._ahead[end:]
        return ahead

    def readinto(self, buffer: bytearray | memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def digest(self) -> str:
        """Read the rest of the file, and return the digest of the whole."""
        while self._next(_AT_ONCE):
            pass
        return f"sha256:{self._hash.hexdigest()}"

    def _next(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data


def unpacked_digest(path: Path) -> str:
    """Return the digest of the tar archive in a layer's file. Raises OSError and one of UNREADABLE."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        begin = file.read(LOOK)
        file.seek(0)
        with uncompressed(file, begin) as archive:
            while piece := archive.read(_AT_ONCE):
                total.update(piece)
    return f"sha256:{total.hexdigest()}"
