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
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def open_member(archive: IO[bytes], info: zipfile.ZipInfo) -> IO[bytes]:
    """What a file holds, one at a time of an archive; its method is one of METHODS. Where the archive ends, it ends."""
    archive.seek(info.header_offset)
    header = archive.read(_HEADER)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    archive.seek(name + extra, io.SEEK_CUR)
    part = _Part(archive, info.compress_size)
    return cast(IO[bytes], part if info.compress_type == zipfile.ZIP_STORED else _Inflated(part))


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
        """As many bytes as that, but at the end: an archive's writer asks for no less."""
        pieces: list[bytes] = []
        while size > 0 and not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._packed.read()
            data = self._inflater.decompress(packed, size)
            if not data and not packed:
                break
            pieces.append(data)
            size -= len(data)
        return b"".join(pieces)
