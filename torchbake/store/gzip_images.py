"""Images whose layers are compressed by gzip: made once from images of another compression, and kept in a layout.

The config stays as it is, byte for byte, so both are one image.
"""

import os
import tempfile
from functools import partial
from pathlib import Path

from torchbake.core.digest import file_digest
from torchbake.core.json_text import read_json
from torchbake.core.parallel import side_by_side
from torchbake.errors import BuildError
from torchbake.oci.gzip_layer import gzip_layer
from torchbake.oci.layer_order import Layer, manifest_of
from torchbake.oci.layer_stream import UNREADABLE
from torchbake.oci.manifest import Blob, Manifest
from torchbake.store.layout import Layout


def gzip_image(manifest: Manifest, blobs: Path, layout: Layout) -> Manifest:
    """Write an image into a layout, its layers compressed by gzip, and return its manifest.

    ``blobs`` is the folder of the image's files, named by their digests. Layers that the layout has by their diff IDs
    are not compressed again. Raises BuildError for an image that is damaged.
    """
    again = "Build it again, with --no-cache."
    try:
        config = _path(blobs, manifest.config).read_bytes()
        if file_digest(_path(blobs, manifest.config)) != manifest.config.digest:
            raise BuildError(f"The config of {manifest.digest} is damaged.", hint=again)
        diff_ids = [str(one) for one in read_json(config)["rootfs"]["diff_ids"]]
        with layout.write_lock() as work:
            export, packed_blobs = Layout(folder=work / "image"), layout.layers()
            export.blobs.mkdir(parents=True)
            missing = {
                diff_id: blob
                for diff_id, blob in zip(diff_ids, manifest.layers, strict=True)
                if diff_id not in packed_blobs
            }
            pack = partial(_pack, blobs, export)
            packed_blobs |= zip(missing, side_by_side(pack, missing.items(), most=os.cpu_count() or 1), strict=True)
            gzip_manifest = manifest_of(
                config, [Layer(blob=packed_blobs[diff_id], diff_id=diff_id) for diff_id in diff_ids]
            )
            export.write(gzip_manifest, config)
            layout.take(export.folder, gzip_manifest.digest)
    except (*UNREADABLE, ValueError, LookupError, TypeError) as error:
        raise BuildError(f"{manifest.digest} cannot be compressed again: {error}.", hint=again) from None
    return layout.get(gzip_manifest.digest)


def _pack(blobs: Path, export: Layout, item: tuple[str, Blob]) -> Blob:
    """Compress one layer into the folder of an export. Raises ValueError for a layer with another diff ID."""
    diff_id, blob = item
    with tempfile.NamedTemporaryFile(dir=export.folder, delete=False) as file:
        target = Path(file.name)
    layer = gzip_layer(_path(blobs, blob), target)
    if layer.diff_id != diff_id:
        raise ValueError(f"{blob.digest} unpacks to {layer.diff_id}, not to {diff_id}")
    export.add(target, layer.blob)
    return layer.blob


def _path(blobs: Path, blob: Blob) -> Path:
    return blobs / blob.digest.removeprefix("sha256:")
