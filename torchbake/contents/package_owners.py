"""The packages that an image shows, and the files of each. Pure.

A file can belong to a Debian package and to a Python distribution, as Debian packages distributions too.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torchbake.contents.model import InstalledPackage
from torchbake.contents.overlay import FolderLinks, ImageEntries
from torchbake.contents.package_files import (
    NamedPackage,
    debian_file,
    is_cached,
    listed_paths,
    packages_reader,
    record_of,
)
from torchbake.contents.scan import LayerContents

Value = TypeVar("Value")
_BYTECODE = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<module>[^/]+?)\.[^/]+\.pyc")
_INFO = re.compile(r"(.+\.(?:dist|egg)-info)/")


@dataclass(frozen=True, kw_only=True)
class _NamedAt:
    """A package, the file that names it, and the files that it lists."""

    package: NamedPackage
    path: str
    files: frozenset[str]


class PackageOwners:
    """Finds the packages of an image by its entries and by the contents of its layers, each with its links."""

    def __init__(self, entries: ImageEntries, layers: Sequence[tuple[LayerContents, FolderLinks]]) -> None:
        self._entries = entries
        self._folders = FolderLinks(links=entries.links)
        self._packages = [_at_real_paths(layer.packages, links) for layer, links in layers]
        self._lists = [_at_real_paths(layer.lists, links) for layer, links in layers]
        self._bytecode, self._beside = _bytecode(entries.visible), _beside(entries.visible)

    def packages(self) -> tuple[InstalledPackage, ...]:
        """Return all packages, sorted, without distributions that another distribution has bundled."""
        lists = self._debian_files()
        packages = list[_NamedAt]()
        for path, origin in self._naming_files():
            for package in self._packages[origin[0]].get(origin[1], ()):
                own = self._distribution(path) if package.kind == "python" else lists.get(package.name, ())
                packages.append(_NamedAt(package=package, path=path, files=self._visible(own)))
        owners = defaultdict[str, set[str]](set)
        for one in packages:
            if one.package.kind == "python":
                for file in one.files:
                    owners[file].add(one.path)
        merged = defaultdict[NamedPackage, set[str]](set)
        for one in packages:
            if one.package.kind == "debian" or owners[one.path] <= {one.path}:
                merged[one.package] |= one.files
        return tuple(
            InstalledPackage(kind=package.kind, name=package.name, version=package.version, files=frozenset(files))
            for package, files in sorted(merged.items())
        )

    def _naming_files(self) -> Iterator[tuple[str, tuple[int, str]]]:
        """Yield each visible file that names packages, and the layer and path of its content."""
        entries = self._entries
        for path, layer in entries.visible.items():
            if path in self._packages[layer]:
                if not is_cached(path):
                    yield path, (layer, path)
                continue
            file = entries.layers[layer][path]
            if file.kind in ("hardlink", "symlink") and packages_reader(path) and not is_cached(path):
                target = self._target(path, file.content) if file.kind == "symlink" else file.content
                origin = entries.visible.get(target, layer) if file.kind == "symlink" else layer
                yield path, (origin, target)

    def _target(self, path: str, target: str) -> str:
        joined = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), target)).lstrip("/")
        return self._folders.real(joined)

    def _distribution(self, path: str) -> Iterator[str]:
        """Yield the paths that a distribution lists, and those beside the file that names it."""
        yield from self._beside.get(posixpath.dirname(path), (path,))
        record = record_of(path)
        layer = self._entries.visible.get(record)
        if layer is not None:
            file = self._entries.layers[layer][record]
            names = self._lists[layer].get(file.content if file.kind == "hardlink" else record, ())
            yield from listed_paths(record, names)

    def _debian_files(self) -> dict[str, set[str]]:
        """Return the files of each package: the paths of its list, else of its hashes, and dpkg's own files."""
        files = defaultdict[str, dict[str, set[str]]](lambda: defaultdict(set))
        for path, layer in self._entries.visible.items():
            if of := debian_file(path):
                name, kind = of
                files[name][""].add(path)
                files[name][kind].update(listed_paths(path, self._lists[layer].get(path, ())))
        return {name: (each["list"] or each["md5sums"]) | each[""] for name, each in files.items()}

    def _visible(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the visible files at these paths, with the bytecode of Python files."""
        entries, files = self._entries, set[str]()
        for path in map(self._folders.real, paths):
            layer = entries.visible.get(path)
            if layer is not None and entries.layers[layer][path].kind != "folder":
                files.add(path)
                files.update(self._bytecode.get(path, ()))
        return frozenset(files)


def _at_real_paths(values: Mapping[str, Value], links: FolderLinks) -> dict[str, Value]:
    return {links.real(path): value for path, value in values.items()}


def _bytecode(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of bytecode by the Python file that they were compiled of."""
    files = defaultdict[str, list[str]](list)
    for path in paths:
        if path.endswith(".pyc") and (match := _BYTECODE.fullmatch(path)):
            files[f"{match['folder']}{match['module']}.py"].append(path)
    return files


def _beside(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths below each folder of a distribution's metadata."""
    files = defaultdict[str, list[str]](list)
    for path in paths:
        if "-info/" in path and (match := _INFO.match(path)):
            files[match[1]].append(path)
    return files
