"""The packages that differ between two images, and the files that belong to none. Pure."""

import posixpath
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchbake.contents.file_changes import FileChange, changed_files, container_files, with_moves
from torchbake.contents.model import InstalledPackage, Inventory

PackageState = Literal["added", "removed", "changed", "rebuilt"]
PackageName = tuple[Literal["python", "debian"], str]


@dataclass(frozen=True, kw_only=True)
class PackageChange:
    """A package that differs: its versions, empty if an image lacks it, and the bytes of its files in both images.

    ``files`` are its paths that differ. A package with the same version and other files is rebuilt. Bytecode counts
    neither in the bytes nor in the files.
    """

    kind: Literal["python", "debian"]
    name: str
    before: str
    after: str
    size_before: int
    size_after: int
    files: tuple[FileChange, ...] = ()

    @property
    def state(self) -> PackageState:
        if not self.before:
            return "added"
        if not self.after:
            return "removed"
        return "rebuilt" if self.before == self.after else "changed"


@dataclass(frozen=True, kw_only=True)
class ContentChanges:
    """The packages that differ, the files without a package, and bytecode, which would hide the others by its number.

    ``size_before`` and ``size_after`` are the bytes that a container sees.
    """

    packages: tuple[PackageChange, ...]
    files: tuple[FileChange, ...]
    bytecode: tuple[FileChange, ...]
    size_before: int
    size_after: int


def content_changes(before: Inventory, after: Inventory) -> ContentChanges:
    """Compare the files of two images by the packages that own them. A moved file is in one package, or in none."""
    old, new = container_files(before), container_files(after)
    owners = _owners(before) | _owners(after)
    parts = defaultdict[PackageName | None, list[FileChange]](list)
    bytecode = []
    for change in changed_files(old, new):
        shared = change.before and change.after and change.file.kind == "folder"  # a folder of several packages
        if is_bytecode(change.path):
            bytecode.append(change)
        else:
            parts[None if shared else owners.get(change.path)].append(change)
    sizes: Mapping[PackageName, list[int]] = defaultdict(lambda: [0, 0])
    for side, files in enumerate((old, new)):
        for path, file in files.items():
            if file.size and (owner := owners.get(path)) and not is_bytecode(path):
                sizes[owner][side] += file.size
    versions = [_versions(image) for image in (before, after)]
    return ContentChanges(
        packages=tuple(
            PackageChange(
                kind=key[0], name=key[1], before=versions[0].get(key, ""), after=versions[1].get(key, ""),
                size_before=sizes[key][0], size_after=sizes[key][1], files=with_moves(parts[key]),
            )
            for key in sorted({*versions[0], *versions[1]})
            if parts[key] or versions[0].get(key) != versions[1].get(key)
        ),
        files=with_moves(parts[None]),
        bytecode=tuple(bytecode),
        size_before=sum(file.size for file in old.values()),
        size_after=sum(file.size for file in new.values()),
    )  # fmt: skip


def is_bytecode(path: str) -> bool:
    """Return whether a path is Python's bytecode or a folder of it."""
    return path.endswith(".pyc") or posixpath.basename(path) == "__pycache__"


def _owners(image: Inventory) -> dict[str, PackageName]:
    """Return the package of each path. Of several packages the largest owns it, as one can contain another."""
    owners = dict[str, PackageName]()
    for package in sorted(image.packages, key=lambda each: (len(each.files), each.kind, each.name)):
        owners |= dict.fromkeys(package.files, (package.kind, package.name))
    return owners


def _versions(image: Inventory) -> dict[PackageName, str]:
    """Return the version of each package; several versions, as of an architecture each, are listed in order."""
    versions = defaultdict[PackageName, list[InstalledPackage]](list)
    for package in image.packages:
        versions[package.kind, package.name].append(package)
    return {key: ", ".join(sorted(each.version for each in own)) for key, own in versions.items()}
