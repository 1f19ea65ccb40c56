"""The files of an image by layer, and the packages that own them. Pure.

Paths have no leading slash. Sizes are bytes of unpacked content, without tar headers.
https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FileKind = Literal["file", "folder", "symlink", "hardlink", "device"]


@dataclass(frozen=True, kw_only=True)
class LayerFile:
    """An entry of a layer, whether a later layer hides it or not.

    ``layer`` counts from 0, the lowest. ``size`` is 0 for everything but a file. ``content`` is the SHA-256 of a file
    as hexadecimal digits, or the target of a link. ``hidden_by`` is the layer that replaces or removes the entry; None
    if the image shows it. ``replaced`` is true if that layer has another entry of the same path.
    """

    path: str
    layer: int
    kind: FileKind = "file"
    size: int = 0
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    content: str = ""
    hidden_by: int | None = None
    replaced: bool = False
    gpu_code: Mapping[str, int] = field(default_factory=dict)  # bytes by architecture, as in {"sm_90": 1234}


@dataclass(frozen=True, kw_only=True)
class ImageLayer:
    """A layer: its digest in the place it was read from, its bytes as stored there, and the step that made it.

    ``compressed`` is None if the place keeps no compressed layers. ``size`` is the sum of the sizes of its files.
    """

    digest: str
    compressed: int | None
    size: int
    step: str = ""


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """A Python distribution or a Debian package that the image shows, with the paths of its files."""

    kind: Literal["python", "debian"]
    name: str
    version: str
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The contents of an image. ``files`` are sorted by layer, then by path; ``config`` is its configuration."""

    name: str
    digest: str
    platform: str
    layers: tuple[ImageLayer, ...]
    files: tuple[LayerFile, ...]
    packages: tuple[InstalledPackage, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of all layers, with hidden files."""
        return sum(layer.size for layer in self.layers)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the configuration, which is a stranger's and may have any form."""
        config = self.config.get("config")
        lines = config.get("Env") if isinstance(config, Mapping) else None
        pairs = [line.partition("=") for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
        return {name: value for name, _, value in pairs}

    @property
    def visible(self) -> dict[str, LayerFile]:
        """The files that a container sees, by path."""
        return {file.path: file for file in self.files if file.hidden_by is None}

    @property
    def owned(self) -> frozenset[str]:
        """The paths of all files of packages."""
        return self.owned_by("python", "debian")

    def owned_by(self, *kinds: str) -> frozenset[str]:
        """The paths of the files of packages of these kinds."""
        return frozenset[str]().union(*(package.files for package in self.packages if package.kind in kinds))
