"""The content store of an engine on this machine: the blobs of its images as files by digest, read where they lie.

`docker save` writes out a whole image to hand out one layer of it; here nothing is copied. Only the containerd image
store has it, and only who may read the engine's folder can use it: root, or the user of a rootless engine.
"""

import os
from collections.abc import Callable
from pathlib import Path

from torchbake.engine.client import Engine, is_local
from torchbake.engine.containerd import STORE, roots
from torchbake.errors import EngineError
from torchbake.oci.layout import Layout
from torchbake.oci.manifest import Blob, Manifest


def stored(engine: Engine, digest: str) -> tuple[Layout, Manifest] | None:
    """Where the engine keeps an image, and its manifest, if all its blobs can be read there. None: ask the engine."""
    for layout in _layouts(engine):
        manifest = layout.find(digest)
        if manifest and all(os.access(layout.path(blob.digest), os.R_OK) for blob in manifest.blobs):
            return layout, manifest
    return None


def has_blob(engine: Engine) -> Callable[[Blob], bool]:
    """Tells whether the engine has a blob, as far as this can be seen here; it may drop one that nothing uses."""
    folders = _layouts(engine)

    def has(blob: Blob) -> bool:
        return any(_size(layout.path(blob.digest)) == blob.size for layout in folders)

    return has


def _layouts(engine: Engine) -> tuple[Layout, ...]:
    try:
        if not is_local(engine) or not engine.containerd_store:
            return ()
        return tuple(Layout(folder=root / STORE) for root in roots(engine))
    except EngineError:
        return ()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
