"""A layer compressed by gzip, which every client can read: a new one, or an existing one compressed again."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from isal import isal_zlib

from torchbake.core.digest import DigestWriter
from torchbake.oci.layer_archive import Member, write_archive
from torchbake.oci.layer_order import Layer
from torchbake.oci.layer_stream import LOOK, uncompressed
from torchbake.oci.manifest import Blob

MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
# ISA-L's levels go from 0 to 3. Its output is the same on each x86-64 machine with SSE 4.2, for one version of ISA-L.
_LEVEL = 2
_GZIP_HEADER = 31  # isal_zlib's window bits for a gzip stream; it writes neither a time nor a name
_AT_ONCE = 2**20  # bytes


def gzip_layer(source: Path, target: Path) -> Layer:
    """Write a layer again, compressed by gzip. The same archive gives the same bytes.

    Raises OSError, and one of `layer_stream.UNREADABLE` for a damaged layer.
    """
    with source.open("rb") as file:
        begin = file.read(LOOK)
        file.seek(0)
        with uncompressed(file, begin) as archive:
            return _write_compressed(target, lambda text: shutil.copyfileobj(archive, text, _AT_ONCE))


def write_gzip_layer(target: Path, members: Iterable[Member]) -> Layer:
    """Write an archive of these entries, compressed by gzip. The same entries give the same bytes. Raises OSError."""
    return _write_compressed(target, lambda archive: write_archive(archive, members))


def _write_compressed(target: Path, write: Callable[[DigestWriter], None]) -> Layer:
    with target.open("wb") as file:
        compressed = DigestWriter(file)
        compressor = _GzipWriter(compressed)
        archive = DigestWriter(compressor)
        write(archive)
        compressor.end()
    blob = Blob(digest=compressed.digest, size=compressed.size, media_type=MEDIA_TYPE)
    return Layer(blob=blob, diff_id=archive.digest)


class _GzipWriter:
    """A writer that compresses an archive."""

    def __init__(self, target: DigestWriter) -> None:
        self._target = target
        self._compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_HEADER)

    def write(self, data: bytes) -> None:
        self._target.write(self._compressor.compress(data))

    def end(self) -> None:
        self._target.write(self._compressor.flush())
