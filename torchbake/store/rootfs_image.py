"""A root file system as an image of one layer, which every builder takes as a base."""

import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torchbake.errors import BaseError
from torchbake.oci.layer_archive import Member, write_layer
from torchbake.oci.layer_order import json_bytes, manifest_of
from torchbake.oci.tar_member import open_member
from torchbake.store.layout import Layout

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write_rootfs_image(
    rootfs: Path, layout: Layout, *, created: str, created_by: str, architecture: str = "amd64"
) -> str:
    """Write the image of a root file system into a layout, in place of its other images, and return its digest.

    The same files have the same digest, whichever tar wrote the archive: tar 1.34 and 1.35, of Debian 12 and 13, write
    different headers. ``created`` is RFC 3339. Raises BaseError if the archive cannot be
    read.
    """
    with layout.write_lock() as work:
        export = Layout(folder=work / "image")
        export.blobs.mkdir(parents=True)
        try:
            with tarfile.open(rootfs, encoding="utf-8") as source:
                layer = write_layer(work / "layer", _members(source), threads=0)
        except tarfile.TarError as error:
            raise BaseError(f"{rootfs}: not a root file system: {error}", hint="Is the disk full?") from None
        export.add(work / "layer", layer.blob)
        config = json_bytes(
            {
                "created": created,
                "architecture": architecture,
                "os": "linux",
                "config": {"Env": [_PATH], "Cmd": ["bash"]},
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
                "history": [{"created": created, "created_by": created_by}],
            }
        )
        manifest = manifest_of(config, [layer])
        export.write(manifest, config)
        layout.take(export.folder, manifest.digest)
    layout.tidy([manifest.digest])
    return manifest.digest


def _members(source: tarfile.TarFile) -> Iterator[Member]:
    for member in source:
        yield member, partial(open_member, source, member) if member.isreg() else None
