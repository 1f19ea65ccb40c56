"""Read a file of a zip archive, inflated by Intel's ISA-L, which is nearly twice as fast as zlib.

The checksum is not verified, because the digest of the archive was.
Source: APPNOTE.TXT, 4.3.7, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

import io
import zipfile
from typing import IO, cast

from isal import isal_zlib

_HEADER = 30  # bytes of a file's header before its name and its extra field
_CHUNK = 2**20
_PACKED = 2**18  # compressed bytes for one chunk; a larger rest would be copied


def open_member(archive: IO[bytes], info: zipfile.ZipInfo) -> IO[bytes]:
    """Open a stored or deflated file of an archive; only one can be open. It ends if the archive ends.

    A read may return fewer bytes than requested, also before the end.
    """
    archive.seek(info.header_offset)
    header = archive.read(_HEADER)
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    archive.seek(name + extra, io.SEEK_CUR)
    part = _Part(archive, info.compress_size)
    return cast(IO[bytes], part if info.compress_type == zipfile.ZIP_STORED else _Inflated(part))


def read_member(archive: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    """Read a whole file of an archive."""
    return b"".join(iter(open_member(archive, info).read, b""))


class _Part(io.RawIOBase):
    """The next ``size`` bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = _CHUNK, /) -> bytes:
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


class _Inflated(io.RawIOBase):
    """The content of a raw deflate stream (RFC 1951)."""

    def __init__(self, packed: _Part) -> None:
        self._packed, self._inflater = packed, isal_zlib.decompressobj(-15)

    def read(self, size: int = _CHUNK, /) -> bytes:
        """Read bytes; none only at the end."""
        data = b""
        while not data and not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._packed.read(_PACKED)
            data = self._inflater.decompress(packed, size)
            if not data and not packed:
                break
        return data
