"""The contents that the layers of an image store, each with all of its names. Pure.

A file and its hard links in a layer share one content, which is stored once. It is hidden only if all of its names are.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchbake.contents.model import LayerFile


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """The bytes of one file in one layer, with the entry that has them first, and their hard links in that layer."""

    names: tuple[LayerFile, ...]

    @property
    def file(self) -> LayerFile:
        return self.names[0]

    @cached_property
    def visible(self) -> tuple[LayerFile, ...]:
        """The names that a container sees."""
        return tuple(name for name in self.names if name.hidden_by is None)

    @cached_property
    def path(self) -> str:
        """A name that a container sees, or the hidden file's."""
        return next(iter(self.visible or self.names)).path


def stored_files(files: Iterable[LayerFile]) -> list[StoredFile]:
    """Return the contents of all layers that have bytes, in the order of ``files``."""
    entries = {(each.layer, each.path): each for each in files if each.kind in ("file", "hardlink")}
    names: dict[tuple[int, str], list[LayerFile]] = {}
    for entry in entries.values():
        names.setdefault(_place(entry, entries), []).append(entry)
    owners = [place for place in entries if place in names and entries[place].size]
    return [StoredFile(names=_owner_first(entries[place], names[place])) for place in owners]


def _place(entry: LayerFile, entries: dict[tuple[int, str], LayerFile]) -> tuple[int, str]:
    """Return the layer and path of the entry with the bytes. A link may lead to another link of its layer."""
    visited = set[str]()
    while entry.kind == "hardlink" and entry.path not in visited:
        visited.add(entry.path)
        target = entries.get((entry.layer, posixpath.normpath(f"/{entry.content}").lstrip("/")))
        if target is None:
            break
        entry = target
    return entry.layer, entry.path


def _owner_first(owner: LayerFile, names: Sequence[LayerFile]) -> tuple[LayerFile, ...]:
    if len(names) == 1:
        return (owner,)
    return (owner, *(name for name in names if name is not owner))
