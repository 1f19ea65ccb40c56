"""Layers for tests, as an image has them one on the other."""

import io
from collections.abc import Sequence

from tests.unit.layouts import Entry, archive
from torchbake.contents.assemble import assemble
from torchbake.contents.model import Inventory
from torchbake.contents.scan import LayerScanner
from torchbake.contents.stored_image import StoredImage, StoredLayer


def image_of(*layers: Sequence[Entry], steps: Sequence[str] = ()) -> Inventory:
    """Return the inventory of an image of these layers, the lowest first, made by these steps."""
    contents = [LayerScanner().scan(io.BytesIO(archive(*entries))) for entries in layers]
    config = {
        "os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [each.digest for each in contents]},
        "history": [{"created_by": step} for step in steps],
    }  # fmt: skip
    stored = tuple(StoredLayer(digest=each.digest, compressed=None) for each in contents)
    image = StoredImage(digest="sha256:image", config=config, layers=stored)
    return assemble("image", image, {each.digest: each for each in contents})
