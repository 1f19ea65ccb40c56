"""The content of a file in a zip archive, inflated by Intel's ISA-L: nearly twice as fast as by zlib.

Its check sum is not looked at: the archive's own digest has been.
Source: APPNOTE.TXT, 4.3.7, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

import io
import zipfile
from typing import IO, cast

from isal import isal_zlib

_HEADER = 30  # bytes of a file's own header, before its name and what is extra
_CHUNK = 2**20
_PACKED = 2**18  # of a chunk: inflated it is seldom more than one, of which a rest would be copied


def open_member(archive: IO[bytes], info: zipfile.ZipInfo) -> IO[bytes]:
    """What a file holds, one at a time of an archive; it is stored or deflated. Where the archive ends, it ends.

    To read it gives at most as many bytes as were asked for, and fewer before the end too.
    """
    archive.seek(info.header_offset)
    header = archive.read(_HEADER)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    archive.seek(name + extra, io.SEEK_CUR)
    part = _Part(archive, info.compress_size)
    return cast(IO[bytes], part if info.compress_type == zipfile.ZIP_STORED else _Inflated(part))


def read_member(archive: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    """All that a file holds."""
    return b"".join(iter(open_member(archive, info).read, b""))


class _Part(io.RawIOBase):
    """The next bytes of a file, so many of them."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = _CHUNK, /) -> bytes:
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


class _Inflated(io.RawIOBase):
    """What a raw stream of deflate holds (RFC 1951)."""

    def __init__(self, packed: _Part) -> None:
        self._packed, self._inflater = packed, isal_zlib.decompressobj(-15)

    def read(self, size: int = _CHUNK, /) -> bytes:
        """None at the end alone."""
        data = b""
        while not data and not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._packed.read(_PACKED)
            data = self._inflater.decompress(packed, size)
            if not data and not packed:
                break
        return data
