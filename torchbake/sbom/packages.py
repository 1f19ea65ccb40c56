"""What an image holds: the Python distributions and Debian packages in its layers, which are read and never run."""

import contextlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from torchbake.core.files import write_text
from torchbake.errors import EngineError
from torchbake.sbom.layer_scan import READER, Findings, Found, Link, read_layer
from torchbake.sbom.package_metadata import Copyright, Deb, Debs, System, Wheel, read_wheel, root_of

_HOPS = 8  # links that are followed; more are a circle
_METADATA = ".dist-info/METADATA"
_SYSTEM = ("etc/os-release", "usr/lib/os-release")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A compressed layer by its digest; its file need not be there where it is remembered."""

    digest: str
    path: Path


@dataclass(frozen=True, kw_only=True, order=True)
class Package:
    """A package of one version. ``licenses`` are SPDX expressions where that is certain, else as the package says.

    ``locations`` are the folders that a Python distribution is installed in; ``architecture`` and the source package
    are of Debian packages alone.
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
class Contents:
    """The packages of an image, sorted, and the distribution that the Debian ones are of."""

    packages: tuple[Package, ...] = ()
    system: System = field(default_factory=System)

    def of(self, kind: Literal["debian", "python"]) -> tuple[Package, ...]:
        return tuple(package for package in self.packages if package.kind == kind)

    @property
    def bundled(self) -> tuple[Package, ...]:
        """Distributions that others carry inside of them, as setuptools does: nobody installed or locked them."""
        roots = {location for package in self.packages for location in package.locations}
        return tuple(
            package
            for package in self.of("python")
            if all(any(_is_below(location, root) for root in roots) for location in package.locations)
        )


def packages_in(layers: Sequence[Layer], cache: Path | None = None) -> Contents:
    """What the layers hold, lowest first. ``cache`` is a folder that remembers each layer by its digest.

    Raises EngineError for a layer that cannot be read or is not what its digest says.
    """
    return contents_of(_findings(layer, cache) for layer in layers)


def remembered(digest: str, cache: Path | None) -> Findings | None:
    """What is known of a layer; None where nothing is, or only what another version of the toolkit read."""
    if cache is None:
        return None
    try:
        known = Findings.model_validate_json(_note_of(digest, cache).read_bytes())
    except (OSError, ValueError):
        return None
    return known if known.reader == READER else None


def _findings(layer: Layer, cache: Path | None) -> Findings:
    known = remembered(layer.digest, cache)
    if known is not None:
        return known
    try:
        with layer.path.open("rb") as file:
            findings = read_layer(file, layer.digest)
    except FileNotFoundError:
        raise EngineError(f"The layer {layer.digest} is not at hand.", hint="Build the image again.") from None
    if cache is not None:
        with contextlib.suppress(OSError):  # only a cache: without it the layer is read again
            write_text(_note_of(layer.digest, cache), findings.model_dump_json())
    return findings


def _note_of(digest: str, cache: Path) -> Path:
    return cache / f"{digest.replace(':', '-')}.json"


def contents_of(layers: Iterable[Findings]) -> Contents:
    """What is left when the layers lie upon each other, lowest first. Pure."""
    files = overlay(layers)
    system = next((found for path in _SYSTEM if isinstance(found := follow(path, files), System)), System())
    packages = [*_wheels(files), *_debs(files)]
    return Contents(packages=_merged(packages), system=system)


def overlay(layers: Iterable[Findings]) -> dict[str, Found]:
    """What tells of packages in the image, by path: an upper layer's word counts, and what it hides is gone."""
    files: dict[str, Found] = {}
    for layer in layers:
        taken, opaque, folders = {*layer.gone, *layer.leaves}, set(layer.opaque), set(layer.folders)
        files = {
            path: entry
            for path, entry in files.items()
            if path not in folders and not (_with_parents(path) & taken) and not (_parents(path) & opaque)
        }
        files.update(layer.found)
    return files


def follow(path: str, files: Mapping[str, Found]) -> Found | None:
    """What is at a path, through links of it and of its folder."""
    for _ in range(_HOPS):
        entry, parent = files.get(path), files.get(posixpath.dirname(path))
        if isinstance(entry, Link):
            path = entry.target
        elif entry is None and isinstance(parent, Link):
            path = posixpath.join(parent.target, posixpath.basename(path))
        else:
            return entry
    return None


def _wheels(files: Mapping[str, Found]) -> Iterable[Package]:
    for path in files:
        if not path.endswith(_METADATA):
            continue
        wheel = follow(path, files)
        if not isinstance(wheel, Wheel):  # a link to where nobody looked: the folder's name tells what it is
            wheel = read_wheel("", posixpath.basename(posixpath.dirname(path)))
        if wheel.name:
            yield Package(
                kind="python",
                name=wheel.name,
                version=wheel.version,
                licenses=wheel.licenses,
                locations=(root_of(path),),
            )


def _debs(files: Mapping[str, Found]) -> Iterable[Package]:
    for entry in files.values():
        for deb in entry.packages if isinstance(entry, Debs) else ():
            yield Package(kind="debian", licenses=_licenses_of(deb, files), **deb.model_dump())


def _licenses_of(deb: Deb, files: Mapping[str, Found]) -> tuple[str, ...]:
    copyright_ = follow(f"usr/share/doc/{deb.name}/copyright", files)
    return copyright_.licenses if isinstance(copyright_, Copyright) else ()


def _merged(packages: Iterable[Package]) -> tuple[Package, ...]:
    """One package for each name, version and architecture, in all the places where it is."""
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


def _parents(path: str) -> set[str]:
    """Every folder that a path is in, the root (an empty name) among them."""
    parts = path.split("/")
    return {"/".join(parts[:count]) for count in range(len(parts))}


def _with_parents(path: str) -> set[str]:
    return {path, *_parents(path)}


def _is_below(location: str, root: str) -> bool:
    return location != root and location.startswith(root.rstrip("/") + "/")
