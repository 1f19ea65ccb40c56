"""One member of a tar archive: read as a file, and written in pieces without the three copies of `tarfile`."""

import tarfile
from collections.abc import Iterator
from typing import IO, Literal, cast

_CHUNK = 2**20


class MemberSizeError(OSError):
    """The content of an entry is longer or shorter than the entry's size."""


def open_member(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    """Open the content of a regular file."""
    return cast(IO[bytes], archive.extractfile(info))


def member(info: tarfile.TarInfo, file: IO[bytes] | None, form: Literal[0, 1, 2]) -> Iterator[bytes]:
    """Yield the bytes of an entry in a format of `tarfile`, with the content of ``file`` if there is one.

    Raises MemberSizeError.
    """
    yield info.tobuf(form, "utf-8", "surrogateescape")
    if file is None:
        return
    size = 0
    while piece := file.read(_CHUNK):
        size += len(piece)
        yield piece
    if size != info.size:
        raise MemberSizeError(f"{info.name} has {size} bytes in place of {info.size}")
    yield bytes(-size % tarfile.BLOCKSIZE)
