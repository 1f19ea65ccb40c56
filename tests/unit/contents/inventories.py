"""Inventories of a few files."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchbake.contents.model import ImageLayer, InstalledPackage, Inventory, LayerFile


def entry(path: str, content: str = "x", *, size: int = 0, **more: Any) -> LayerFile:
    """A file of a content, which has a byte for each character unless ``size`` is given."""
    kind = more.get("kind", "file")
    return LayerFile(path=path, content=content, size=size or (len(content) if kind == "file" else 0),
                     **{"layer": 0, **more})  # fmt: skip


def link(path: str, target: str, **more: Any) -> LayerFile:
    return entry(path, target, kind="symlink", mode=0o777, **more)


def hard(path: str, target: str, **more: Any) -> LayerFile:
    return entry(path, target, kind="hardlink", **more)


def package(name: str, version: str, *paths: str, kind: Any = "python") -> InstalledPackage:
    return InstalledPackage(kind=kind, name=name, version=version, files=frozenset(paths))


def image(
    *files: LayerFile,
    name: str = "a",
    packages: Sequence[InstalledPackage] = (),
    layers: Sequence[ImageLayer] = (),
    settings: Mapping[str, Any] | None = None,
    diff_ids: Sequence[str] = (),
) -> Inventory:
    """An image; without ``layers`` it has one for each that its files name."""
    count = 1 + max((file.layer for file in files), default=0)
    own = [
        ImageLayer(
            digest=f"sha256:{name}{at}", compressed=10, size=sum(each.size for each in files if each.layer == at)
        )
        for at in range(count)
    ]
    config: dict[str, Any] = {"config": settings or {}, "rootfs": {"diff_ids": list(diff_ids)}}
    return Inventory(
        name=name, digest=f"sha256:{name}", platform="linux/amd64", layers=tuple(layers or own),
        files=tuple(sorted(files, key=lambda file: (file.layer, file.path))), packages=tuple(packages),
        config=config,
    )  # fmt: skip
