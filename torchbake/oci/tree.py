"""The files of an image as a tree of paths, and the changes that a layer makes to it. Pure.

https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

FORM = 1  # of the layers that are written by these rules: another one makes other layers of the same files
ROOT = "."
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, kw_only=True)
class FileNode:
    """A file, folder, link or device of an image. Two nodes that differ in ``time`` or ``file`` alone are equal.

    ``kind`` is the type of a tar entry. ``content`` is the digest of a file, the target of a symbolic link, or the
    numbers of a device.

    ``file`` is the path in its layer that has the file's content. Names with the same ``file``
    are hard links.
    """

    kind: bytes
    mode: int
    uid: int = 0
    gid: int = 0
    content: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    time: int = field(default=0, compare=False)
    file: str = field(default="", compare=False)

    @property
    def is_folder(self) -> bool:
        return self.kind == tarfile.DIRTYPE


class HistoryStep(NamedTuple):
    """An instruction of a Dockerfile as the history of an image has it, and the paths where it mounts something."""

    text: str
    mounts: tuple[str, ...] = ()


Tree: TypeAlias = Mapping[str, FileNode]
Change: TypeAlias = tuple[
    str, FileNode | None
]  # a path with its new node; None for a whiteout, or an opaque folder's mark
_FOLDER = FileNode(kind=tarfile.DIRTYPE, mode=0o755)


def clean_path(name: str) -> str:
    """Write the name of a tar entry as a path of a tree. No name leads out of the tree."""
    return posixpath.normpath(f"/{name}").lstrip("/") or ROOT


def is_whiteout(path: str) -> bool:
    """Return whether a tar entry removes a path, or marks a folder as opaque."""
    return path.rpartition("/")[2].startswith(_WHITEOUT)


def whiteout(path: str) -> str:
    """Return the name of the tar entry that removes a path."""
    return _below(_parent(path), _WHITEOUT + path.rpartition("/")[2])


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """The paths of lower layers that a layer hides: the ``removed`` ones, and all paths below the ``covered`` ones."""

    removed: frozenset[str]
    covered: frozenset[str]

    def hides(self, path: str) -> bool:
        """Return whether a path of a lower layer is hidden. The root is always visible."""
        if path == ROOT:
            return False
        return path in self.removed or ROOT in self.covered or any(each in self.covered for each in parents(path))


def hiding_of(whiteouts: Iterable[str], leaves: Iterable[str]) -> Hiding:
    """Return what a layer hides by its whiteouts, and by ``leaves``: its entries that are no folders."""
    removed, opaque = set[str](), set[str]()
    for path in whiteouts:
        folder, name = _parent(path), path.rpartition("/")[2]
        if name == _OPAQUE:
            opaque.add(folder)
        else:
            removed.add(_below(folder, name.removeprefix(_WHITEOUT)))
    return Hiding(removed=frozenset(removed), covered=frozenset(removed | opaque | {*leaves}))


def apply(tree: Tree, layer: Iterable[Change]) -> dict[str, FileNode]:
    """Return a tree with the changes of a layer. An equal node is not replaced, so its time stays."""
    changes = dict(layer)
    added = {path: node for path, node in changes.items() if node}
    hiding = hiding_of(filter(is_whiteout, changes), (path for path, node in added.items() if not node.is_folder))
    result = {path: node for path, node in tree.items() if not hiding.hides(path)}
    for path, node in added.items():
        for folder in parents(path):
            if not result.get(folder, node).is_folder or folder not in result:
                result[folder] = added.get(folder, _FOLDER)
        if result.get(path) != node:
            result[path] = node
    return result


def difference(before: Tree, after: Tree) -> list[Change]:
    """Return the fewest changes that make a tree of another one, sorted by path, with the folders above each.

    Without these folders an engine would make them with other owners and modes. No folder is
    opaque: each path that is gone has its own whiteout.
    """
    before = {ROOT: _FOLDER, **before}
    changed = {path for path, node in after.items() if before.get(path) != node}
    lost = before.keys() - after.keys() - {ROOT}
    missing = {path for path in lost if _parent(path) not in lost and after.get(_parent(path), _FOLDER).is_folder}
    above = {folder for path in changed | missing for folder in parents(path) if folder in after}
    present: list[Change] = [(path, after[path]) for path in changed | above]
    removed: list[Change] = [(whiteout(path), None) for path in missing]
    return sorted([*present, *removed], key=lambda change: change[0].split("/"))


def restore(before: Tree, after: Tree, paths: Iterable[str]) -> dict[str, FileNode]:
    """Return the tree ``after`` with the nodes of ``before`` at these paths and below them."""
    roots = frozenset(paths)

    def is_meant(path: str) -> bool:
        return path in roots or any(folder in roots for folder in parents(path))

    nodes = {path: node for path, node in after.items() if not is_meant(path)}
    return nodes | {path: node for path, node in before.items() if is_meant(path)}


def linked_once(changes: Iterable[Change]) -> Iterator[tuple[str, FileNode | None, str]]:
    """Yield changes, each with the target of a hard link: the first path of the same file. The first has no target."""
    first: dict[str, str] = {}
    for path, node in changes:
        target = first.setdefault(node.file, path) if node and node.file else path
        yield path, node, "" if target == path else target


def with_time(node: FileNode, latest: int) -> FileNode:
    """Return a node with a time that is not after ``latest``. Folders get ``latest``: each new file changes theirs."""
    return replace(node, time=latest if node.is_folder else max(0, min(node.time, latest)))


def parents(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def _below(folder: str, name: str) -> str:
    return name if folder == ROOT else f"{folder}/{name}"
