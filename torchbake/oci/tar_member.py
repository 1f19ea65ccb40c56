"""One member of a tar archive, in pieces as they are read: `tarfile` would copy each of them three times first."""

import tarfile
from collections.abc import Iterator
from typing import IO, Literal

_CHUNK = 2**20


def member(info: tarfile.TarInfo, file: IO[bytes] | None, form: Literal[0, 1, 2]) -> Iterator[bytes]:
    """The bytes that `tarfile` writes of an entry, in one of its formats, with what ``file`` holds if it has content.

    Raises OSError unless that is as long as the entry says.
    """
    yield info.tobuf(form, "utf-8", "surrogateescape")
    if file is None:
        return
    size = 0
    while piece := file.read(_CHUNK):
        size += len(piece)
        yield piece
    if size != info.size:
        raise OSError(f"{info.name} has {size} bytes in place of {info.size}")
    yield bytes(-size % tarfile.BLOCKSIZE)
