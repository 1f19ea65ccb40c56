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
from typing import IO, cast

import zstandard

LOOK = 4  # bytes at the begin of a layer that identify its compression
UNREADABLE = (tarfile.TarError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile, EOFError)
_GZIP = b"\x1f\x8b"
# A frame, or one to be skipped, as some tools write one first: RFC 8878, 3.1.
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_AT_ONCE = 2**20


@contextmanager
def uncompressed(file: IO[bytes], begin: bytes) -> Iterator[IO[bytes]]:
    """Open the tar archive in a file that begins with these LOOK bytes, and whose position is before them.

    Reading a damaged archive raises one of UNREADABLE.
    """
    if begin.startswith(_GZIP):
        with gzip.GzipFile(fileobj=file) as stream:
            yield cast(IO[bytes], stream)
    elif _ZSTD.match(begin):
        unpacker = zstandard.ZstdDecompressor(max_window_size=2**31)
        with unpacker.stream_reader(file, read_size=_AT_ONCE, read_across_frames=True, closefd=False) as stream:
            yield cast(IO[bytes], stream)
    else:
        yield file


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
