"""Python distributions and Debian packages in an image's layers, which are read and never run."""

import contextlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from torchbake.core.files import write_text
from torchbake.errors import EngineError
from torchbake.oci.tree import hiding_of
from torchbake.sbom.layer_scan import READER, Findings, Link, ScannedItem, read_layer
from torchbake.sbom.package_metadata import Copyright, Debs, System, Wheel, read_wheel, root_of

_HOPS = 8  # links that are followed; more are taken for a circle
_METADATA = ".dist-info/METADATA"
_SYSTEM = ("etc/os-release", "usr/lib/os-release")


@dataclass(frozen=True, kw_only=True)
class CompressedLayer:
    """A compressed layer by its digest; a layer in the cache needs no file."""

    digest: str
    path: Path


@dataclass(frozen=True, kw_only=True, order=True)
class Package:
    """A version of a package. ``licenses`` are SPDX expressions if these are certain, else the package's own words.

    ``locations`` are the folders in which a Python distribution is installed. Only Debian packages have an
    ``architecture`` and a source package.
    """

    kind: Literal["debian", "python"]
    name: str
    version: str
    architecture: str = ""
    source: str = ""
    source_version: str = ""
    licenses: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImagePackages:
    """The sorted packages of an image, and its Linux distribution."""

    packages: tuple[Package, ...] = ()
    system: System = field(default_factory=System)

    def of(self, kind: Literal["debian", "python"]) -> tuple[Package, ...]:
        return tuple(package for package in self.packages if package.kind == kind)

    @property
    def bundled(self) -> tuple[Package, ...]:
        """Distributions inside others, as in setuptools, which are neither installed nor locked by themselves."""
        roots = {location for package in self.packages for location in package.locations}

        def is_inside(location: str) -> bool:
            return any(location != root and location.startswith(f"{root.rstrip('/')}/") for root in roots)

        return tuple(package for package in self.of("python") if all(map(is_inside, package.locations)))


def packages_in(layers: Sequence[CompressedLayer], cache: Path | None = None) -> ImagePackages:
    """Return the packages in layers, the lowest first. ``cache`` is a folder with the findings of each layer.

    Raise EngineError for a layer that cannot be read, or whose digest differs.
    """
    return contents_of(_findings(layer, cache) for layer in layers)


def remember(digest: str, cache: Path | None) -> Findings | None:
    """Return the findings of a layer from the cache, or None if this version of the code has not read it."""
    if cache is None:
        return None
    try:
        findings = Findings.model_validate_json(_cache_file(digest, cache).read_bytes())
    except (OSError, ValueError):
        return None
    return findings if findings.reader == READER else None


def _findings(layer: CompressedLayer, cache: Path | None) -> Findings:
    cached = remember(layer.digest, cache)
    if cached is not None:
        return cached
    try:
        with layer.path.open("rb") as file:
            findings = read_layer(file, layer.digest)
    except FileNotFoundError:
        raise EngineError(f"The layer {layer.digest} is not at hand.", hint="Build the image again.") from None
    if cache is not None:
        with contextlib.suppress(OSError):  # without a cache, the layer is read again
            write_text(_cache_file(layer.digest, cache), findings.model_dump_json())
    return findings


def _cache_file(digest: str, cache: Path) -> Path:
    return cache / f"{digest.replace(':', '-')}.json"


def contents_of(layers: Iterable[Findings]) -> ImagePackages:
    """Return the packages of an image from the findings of its layers, the lowest first. Pure."""
    files = overlay(layers)
    system = next((value for path in _SYSTEM if isinstance(value := follow(path, files), System)), System())
    return ImagePackages(packages=_merge([*_wheels(files), *_debs(files)]), system=system)


def overlay(layers: Iterable[Findings]) -> dict[str, ScannedItem]:
    """Merge the metadata of layers by path: an upper layer replaces or hides the files of lower ones."""
    files: dict[str, ScannedItem] = {}
    for layer in layers:
        hiding, replaced = hiding_of(layer.whiteouts, layer.leaves), {*layer.folders, *layer.leaves}
        files = {path: entry for path, entry in files.items() if path not in replaced and not hiding.hides(path)}
        files.update(layer.found)
    return files


def follow(path: str, files: Mapping[str, ScannedItem]) -> ScannedItem | None:
    """Return the metadata at a path, through links of the file and of its folder."""
    for _ in range(_HOPS):
        entry, parent = files.get(path), files.get(posixpath.dirname(path))
        if isinstance(entry, Link):
            path = entry.target
        elif entry is None and isinstance(parent, Link):
            path = posixpath.join(parent.target, posixpath.basename(path))
        else:
            return entry
    return None


def _wheels(files: Mapping[str, ScannedItem]) -> Iterable[Package]:
    for path in files:
        if not path.endswith(_METADATA):
            continue
        wheel = follow(path, files)
        if not isinstance(wheel, Wheel):  # a link to a file that was not read: only the folder's name is known
            wheel = read_wheel("", posixpath.basename(posixpath.dirname(path)))
        if wheel.name:
            yield Package(locations=(root_of(path),), **wheel.model_dump() | {"kind": "python"})


def _debs(files: Mapping[str, ScannedItem]) -> Iterable[Package]:
    for entry in files.values():
        for deb in entry.packages if isinstance(entry, Debs) else ():
            copyright_ = follow(f"usr/share/doc/{deb.name}/copyright", files)
            licenses = copyright_.licenses if isinstance(copyright_, Copyright) else ()
            yield Package(kind="debian", licenses=licenses, **deb.model_dump())


def _merge(packages: Iterable[Package]) -> tuple[Package, ...]:
    """Return one package for each name, version and architecture, with all its locations."""
    merged: dict[tuple[str, ...], Package] = {}
    for package in sorted(packages):
        key = (package.kind, package.name, package.version, package.architecture)
        same = merged.setdefault(key, package)
        merged[key] = replace(
            same,
            licenses=tuple(sorted({*same.licenses, *package.licenses})),
            locations=tuple(sorted({*same.locations, *package.locations})),
        )
    return tuple(merged[key] for key in sorted(merged))
