"""Files of an image as facts: what one is, and the tree that layers make together."""

import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["file", "dir", "link", "other"]
WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path. ``mode`` is the permission bits alone; ``target`` is a symlink's.

    ``broken``: a symlink that leads nowhere. ``capable``: a file with capabilities. ``sha256`` is the hash of a file's
    content, in hexadecimal, where layers were read.
    """

    path: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int = 0
    target: str = ""
    broken: bool = False
    capable: bool = False
    sha256: str = ""

    @property
    def shown(self) -> str:
        """``/app 1001:0 0775``"""
        return f"{self.path} {self.uid}:{self.gid} {self.mode:04o}"

    def below(self, *folders: str) -> bool:
        """Return True if the path is one of ``folders`` or inside one."""
        return any(self.path == folder or self.path.startswith(f"{folder}/") for folder in folders)

    @property
    def sticky(self) -> bool:
        return bool(self.mode & stat.S_ISVTX)


def entries_of(rows: Iterable[Sequence[Any]]) -> tuple[Entry, ...]:
    """From rows of JSON, each with an entry's fields in order."""
    return tuple(Entry(*row) for row in rows)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The merged files of all layers, and the bytes of files that a later layer replaced or deleted."""

    entries: tuple[Entry, ...]
    hidden: Mapping[str, int]


def merge(layers: Iterable[Sequence[Entry]]) -> Tree:
    """The tree that is seen in a container: https://github.com/opencontainers/image-spec/blob/main/layer.md"""
    tree: dict[str, Entry] = {}
    hidden: dict[str, int] = {}
    for layer in layers:
        for reason in [path for path in _deleted(layer, tree) if path in tree]:
            _hide(tree.pop(reason), hidden)
        for entry in layer:
            if not posixpath.basename(entry.path).startswith(WHITEOUT):
                before = tree.get(entry.path)
                if before:
                    _hide(before, hidden)
                tree[entry.path] = entry
    return Tree(entries=tuple(tree.values()), hidden=hidden)


def _deleted(layer: Iterable[Entry], tree: Mapping[str, Entry]) -> Iterator[str]:
    for entry in layer:
        folder, name = posixpath.split(entry.path)
        if name == _OPAQUE:
            yield from [path for path in tree if path.startswith(f"{folder.rstrip('/')}/")]
        elif name.startswith(WHITEOUT):
            reason = posixpath.join(folder, name.removeprefix(WHITEOUT))
            yield from [path for path in tree if path == reason or path.startswith(f"{reason}/")]


def _hide(entry: Entry, hidden: dict[str, int]) -> None:
    if entry.size:
        hidden[entry.path] = hidden.get(entry.path, 0) + entry.size
