"""An image put together: what BuildKit exported, with the layers that were packed beside it, in their order."""

import re
from collections.abc import Callable, Mapping

from torchbake.build.layer_store import LayerStore, linked
from torchbake.errors import BuildError
from torchbake.lock.lockfile import Lock
from torchbake.oci.layer_order import Layer, ordered
from torchbake.oci.layout import Layout

_WHEEL = re.compile(r"COPY /layers/(\S+) (/nvidia|/pytorch) # buildkit")
# NVIDIA's libraries that are released with torch rather than with CUDA: above those that more images share.
_WITH_TORCH = re.compile(r"nvidia-(cusparselt|cudnn|nccl|nvshmem)\b")
_ABOVE_TORCH = re.compile(r"COPY (?:/links /pytorch|/headers /\S+) # buildkit")
_CUDA, _LIBRARIES, _TORCH, _LINKS, _COMPILERS = range(5)


def rank_by(lock: Lock | None) -> Callable[[str], int | None]:
    """Where a layer stands, by the command that made it: what more images have in common is lower.

    None for what is not a wheel's: the base, Debian's packages and all that stands on them.
    """
    shared = {pin.name for pin in lock.layers["nvidia"]} if lock else set()

    def rank(command: str) -> int | None:
        wheel = _WHEEL.fullmatch(command)
        if wheel is None:
            return _LINKS if _ABOVE_TORCH.fullmatch(command) else None
        if wheel[2] == "/pytorch":
            return _TORCH
        if wheel[1] not in shared:
            return _COMPILERS
        return _LIBRARIES if _WITH_TORCH.match(wheel[1]) else _CUDA

    return rank


def compose(
    export: Layout, digest: str, store: LayerStore, layers: Mapping[str, Layer], rank: Callable[[str], int | None]
) -> str:
    """Put an exported image together in place; returns the digest of its new manifest. Raises BuildError."""
    manifest = export.find(digest)
    if manifest is None:
        raise BuildError(f"BuildKit did not export all of {digest}.", hint="Build it again.")
    new, config = ordered(manifest, export.path(manifest.config.digest).read_bytes(), rank, layers)
    for layer in layers.values():
        linked(store.path(layer.blob.digest), export.path(layer.blob.digest))
    export.path(new.config.digest).write_bytes(config)
    export.path(new.digest).write_bytes(new.data)
    if export.find(new.digest) is None:
        raise BuildError("The store of layers changed meanwhile.", hint="Build it again.")
    return new.digest
