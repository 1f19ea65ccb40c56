"""Compare two images by layers, packages, files and configuration. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchbake.contents.config_changes import ConfigChange, config_changes
from torchbake.contents.file_changes import FileChange
from torchbake.contents.model import ImageLayer, Inventory
from torchbake.contents.package_changes import PackageChange, content_changes
from torchbake.core.sizes import human

Part = Literal["packages", "files", "layers", "config"]


@dataclass(frozen=True, kw_only=True)
class LayerChanges:
    """The layers of two images. A layer of ``repacked`` has the content of one of the first image in other bytes.

    ``pull`` are the bytes that a machine with the first image pulls for the second; None if they are not known.
    """

    shared: tuple[ImageLayer, ...]
    repacked: tuple[ImageLayer, ...]
    added: tuple[ImageLayer, ...]
    removed: tuple[ImageLayer, ...]
    pull: int | None

    @property
    def changes(self) -> Mapping[str, tuple[ImageLayer, ...]]:
        """The layers that both images do not share, by the kind of their change."""
        parts = {"added": self.added, "repacked": self.repacked, "removed": self.removed}
        return {kind: layers for kind, layers in parts.items() if layers}


@dataclass(frozen=True, kw_only=True)
class ImageComparison:
    """The differences between two images: ``files`` belong to no package, ``bytecode`` is Python's."""

    before: Inventory
    after: Inventory
    layers: LayerChanges
    packages: tuple[PackageChange, ...]
    files: tuple[FileChange, ...]
    bytecode: tuple[FileChange, ...]
    config: tuple[ConfigChange, ...]
    shown_before: int
    shown_after: int

    @property
    def parts(self) -> Mapping[Part, bool]:
        """For each part, true if the images differ in it."""
        layers = self.layers
        return {
            "packages": bool(self.packages),
            "files": bool(self.files or self.bytecode),
            "layers": bool(layers.repacked or layers.added or layers.removed),
            "config": bool(self.config),
        }

    @property
    def summary(self) -> str:
        """How much larger the second image is, and what it takes to pull it over the first, as a sentence."""
        names, growth = (self.after.name, self.before.name), self.after.size - self.before.size
        sizes = f"({human(self.before.size)} → {human(self.after.size)} unpacked)"
        if growth:
            size = f"{names[0]} is {human(abs(growth))} {'larger' if growth > 0 else 'smaller'} than {names[1]} {sizes}"
        else:
            size = f"{names[0]} has the size of {names[1]} ({human(self.after.size)} unpacked)"
        pull = self.layers.pull
        if pull is None:
            return f"{size}; the bytes of a pull are not known, as its layers are not compressed here."
        return f"{size}; pulling it over the first takes {human(pull) if pull else 'no layer'}."


def compare_images(before: Inventory, after: Inventory) -> ImageComparison:
    """Compare two images of one platform."""
    contents = content_changes(before, after)
    return ImageComparison(
        before=before,
        after=after,
        layers=_layer_changes(before, after),
        packages=contents.packages,
        files=contents.files,
        bytecode=contents.bytecode,
        config=config_changes(before.config, after.config),
        shown_before=contents.size_before,
        shown_after=contents.size_after,
    )


def _layer_changes(before: Inventory, after: Inventory) -> LayerChanges:
    """Compare layers by their digests, and by the digests of their content where both configurations have these."""
    old, new = _contents(before), _contents(after)
    digests, contents = {layer.digest: layer for layer in before.layers}, dict(zip(old, before.layers, strict=False))
    parts: dict[str, list[ImageLayer]] = {"shared": [], "repacked": [], "added": []}
    for content, layer in zip(new, after.layers, strict=True):
        match = digests.get(layer.digest) or contents.get(content)
        if match is None:
            part = "added"
        elif match.digest == layer.digest or None in (match.compressed, layer.compressed):
            part = "shared"  # an engine that unpacks layers knows them by their content alone
        else:
            part = "repacked"
        parts[part].append(layer)
    pulled = {layer.digest: layer.compressed for layer in (*parts["repacked"], *parts["added"])}
    sizes = [size for size in pulled.values() if size is not None]
    digests_after = {*(layer.digest for layer in after.layers), *new}
    return LayerChanges(
        **{part: tuple(layers) for part, layers in parts.items()},
        removed=tuple(
            layer
            for content, layer in zip(old, before.layers, strict=True)
            if not {layer.digest, content} & digests_after
        ),
        pull=sum(sizes) if len(sizes) == len(pulled) else None,
    )


def _contents(image: Inventory) -> list[str]:
    """Return the digest of each unpacked layer; of a configuration without them, the digest of the layer itself."""
    rootfs: Any = image.config.get("rootfs")
    digests = rootfs.get("diff_ids") if isinstance(rootfs, Mapping) else None
    if isinstance(digests, list) and len(digests) == len(image.layers):
        return list(map(str, digests))
    return [layer.digest for layer in image.layers]
