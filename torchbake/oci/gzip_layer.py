"""A layer compressed again by gzip, for clients that cannot read zstd."""

import hashlib
from pathlib import Path

from isal import isal_zlib

from torchbake.core.digest import DigestWriter
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
    unpacked, compressor = hashlib.sha256(), isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_HEADER)
    with source.open("rb") as file, target.open("wb") as new:
        begin, compressed = file.read(LOOK), DigestWriter(new)
        file.seek(0)
        with uncompressed(file, begin) as archive:
            while piece := archive.read(_AT_ONCE):
                unpacked.update(piece)
                compressed.write(compressor.compress(piece))
        compressed.write(compressor.flush())
    blob = Blob(digest=compressed.digest, size=compressed.size, media_type=MEDIA_TYPE)
    return Layer(blob=blob, diff_id=f"sha256:{unpacked.hexdigest()}")
