"""Write the small layers that depend on the files of an image's wheels: links, headers, and CUDA_HOME."""

import importlib.util
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from types import ModuleType

from torchbake.core.paths import TOOLKIT
from torchbake.errors import BuildError
from torchbake.oci.layer_archive import Member, tree_members, unpack, write_layer
from torchbake.oci.layer_order import CommandLayer
from torchbake.render.dockerfile import CUDA_HOME
from torchbake.render.wheel_groups import NVIDIA, WheelGroup
from torchbake.store.layers import LayerStore, PackedLayer

_EPOCH = 315532800  # as `layers/wheels` sets it: 1980-01-01, the oldest time that a zip file can say
_THREADS = 2  # that compress a layer

Wheels = Mapping[WheelGroup, Sequence[PackedLayer]]


@dataclass(frozen=True, kw_only=True)
class LinkLayers:
    """Writes the layers of an image into the folder ``blobs``, with temporary files in ``work``."""

    store: LayerStore
    blobs: Path
    work: Path

    def write(self, wheels: Wheels, *, headers: bool) -> list[CommandLayer]:
        """Write the layers, lowest first. With ``headers`` the image can compile code. Raises BuildError."""
        others = [group for group in wheels if group.root != NVIDIA.root] if NVIDIA in wheels else []
        outputs = [self._beside(wheels[NVIDIA], group, wheels[group]) for group in others]
        if not headers:
            return outputs
        groups = {group: layers for group, layers in wheels.items() if group.on_path}
        trees = {group: tree for group, layers in groups.items() if (tree := self._headers(group, layers))}
        for group, tree in trees.items():
            outputs.append(self._layer(f"COPY /headers {group.root}", tree_members(tree, group.root.strip("/"))))
        if NVIDIA in wheels:
            outputs.append(self._cuda_home(wheels, trees.get(NVIDIA)))
        return outputs

    def _beside(self, nvidia: Iterable[PackedLayer], group: WheelGroup, wheels: Iterable[PackedLayer]) -> CommandLayer:
        """Write links to NVIDIA's packages beside the packages of a group."""
        links = _links().beside_links(_names(nvidia), NVIDIA.root, group.root)
        hidden = links.keys() & {f"{group.root}/{name.partition('/')[0]}" for name in _names(wheels)}
        if hidden:
            raise BuildError(f"A wheel in {group.root} has files in {min(hidden)}, which links to NVIDIA's libraries.")
        return self._layer(f"COPY /links {group.root}", _members(links, group.root))

    def _headers(self, group: WheelGroup, wheels: Iterable[PackedLayer]) -> Path | None:
        """Return a folder with the headers of a group's wheels; None if they have none."""
        folder = self.work / group.layer
        for layer in wheels:
            if layer.headers:
                unpack(self.store.sound(layer.headers), folder)
        return folder / "headers" if folder.is_dir() else None

    def _cuda_home(self, wheels: Wheels, headers: Path | None) -> CommandLayer:
        files = (path for path in headers.rglob("*") if not path.is_dir()) if headers else ()
        names = [path.relative_to(headers).as_posix() for path in files] if headers else []
        nvidia = (layers for group, layers in wheels.items() if group.root == NVIDIA.root)
        links = _links().cuda_links([*names, *_names(chain(*nvidia))], NVIDIA.root, CUDA_HOME)
        return self._layer(f"COPY {CUDA_HOME} {CUDA_HOME}", _members(links, CUDA_HOME))

    def _layer(self, command: str, members: Iterable[Member]) -> CommandLayer:
        layer = write_layer(self.work / "layer", members, threads=_THREADS)
        (self.work / "layer").replace(self.blobs / layer.blob.digest.removeprefix("sha256:"))
        return command, layer


def _names(wheels: Iterable[PackedLayer]) -> list[str]:
    return [*chain(*(layer.names for layer in wheels))]


def _links() -> ModuleType:
    """Import the module of `layers/wheels` for links, which a build by hand uses too."""
    spec = importlib.util.spec_from_file_location("wheel_links", TOOLKIT / "layers/wheels/links.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _members(links: Mapping[str, str], top: str) -> Iterator[Member]:
    """Yield links with their targets in the order of their names, each after its folders below ``top``."""
    folders = {str(parent) for where in links for parent in PurePosixPath(where).parents if parent.is_relative_to(top)}
    for name in sorted({*links, *folders}, key=lambda name: name.split("/")):
        info = tarfile.TarInfo(name.strip("/"))
        info.type, info.mode = (tarfile.SYMTYPE, 0o777) if name in links else (tarfile.DIRTYPE, 0o755)
        info.linkname, info.mtime = links.get(name, ""), _EPOCH
        yield info, None
