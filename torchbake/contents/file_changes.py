"""The paths that differ between two images, as a container sees them. Pure."""

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torchbake.contents.model import Inventory, LayerFile

FileState = Literal["added", "removed", "changed", "moved"]


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A path that differs. Without ``before`` only the second image has it, without ``after`` only the first.

    ``aspects`` name what differs if both have it: ``kind``, ``content``, ``link`` (its target), ``mode``, ``owner``.
    """

    before: LayerFile | None
    after: LayerFile | None
    aspects: tuple[str, ...] = ()

    @property
    def file(self) -> LayerFile:
        """The entry of the second image, else of the first."""
        file = self.after or self.before
        assert file
        return file

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def state(self) -> FileState:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return "changed" if self.before.path == self.after.path else "moved"

    @property
    def size_before(self) -> int:
        return self.before.size if self.before else 0

    @property
    def size_after(self) -> int:
        return self.after.size if self.after else 0


def container_files(image: Inventory) -> dict[str, LayerFile]:
    """Return the files that a container sees, by path. Of several paths of one file the first in order holds its bytes.

    The order of the entries in a layer decides which path is the file and which are hard links to it. Here the first
    path is the file, so two layers with the same links are equal.
    """
    linked = {path for file in image.files if file.kind == "hardlink" for path in (file.path, file.content)}
    entries = defaultdict[str, list[LayerFile]](list)
    for file in image.files:
        if file.path in linked:
            entries[file.path].append(file)
    files, links = image.visible, defaultdict[tuple[str, int], list[LayerFile]](list)
    for file in files.values():
        if file.kind == "hardlink" and (target := _target(file, entries)):
            links[target.path, target.layer].append(file)
    for (path, layer), own in links.items():
        target = next(file for file in reversed(entries[path]) if file.layer == layer)
        first, *others = sorted({*(file.path for file in own), *([path] if files.get(path) is target else [])})
        for name in others:
            files[name] = replace(target, path=name, kind="hardlink", size=0, content=first)
        files[first] = replace(target, path=first)
    return files


def _target(link: LayerFile, entries: Mapping[str, Sequence[LayerFile]]) -> LayerFile | None:
    """Find the file of a hard link, which is in the link's layer or in a lower one."""
    passed_paths = set[str]()
    while link.kind == "hardlink" and link.path not in passed_paths:
        passed_paths.add(link.path)
        targets = [file for file in entries.get(link.content, ()) if file.layer <= link.layer]
        if not targets:
            return None
        link = targets[-1]
    return link if link.kind != "hardlink" else None


def changed_files(before: Mapping[str, LayerFile], after: Mapping[str, LayerFile]) -> list[FileChange]:
    """Return the paths that differ, in order. A folder counts only if it is empty, or if its mode or owner differ."""
    implied_before, implied_after = _folders(before), _folders(after)
    matches = []
    for path in sorted({*before, *after}):
        old = before.get(path) or implied_before.get(path)
        new = after.get(path) or implied_after.get(path)
        file = new or old
        if old and new:
            has_entries = path in before and path in after
            aspects = _aspects(old, new) if has_entries or old.kind != new.kind else ()
            if aspects:
                matches.append(FileChange(before=old, after=new, aspects=aspects))
        elif file and (file.kind != "folder" or not (path in implied_before or path in implied_after)):
            matches.append(FileChange(before=old, after=new))
    return matches


def _folders(paths: Iterable[str]) -> dict[str, LayerFile]:
    """Return the folders of paths, and their folders: a layer need not have an entry for the folder of a file."""
    folders, last = dict[str, LayerFile](), ""
    for path in paths:
        name = posixpath.dirname(path)
        if name == last:
            continue
        last = name
        while name and name not in folders:
            folders[name] = LayerFile(path=name, layer=0, kind="folder", mode=0o755)
            name = posixpath.dirname(name)
    return folders


def _aspects(old: LayerFile, new: LayerFile) -> tuple[str, ...]:
    if old.kind != new.kind:
        return ("kind",)
    content = "link" if old.kind in ("symlink", "hardlink") else "content"
    different = {
        content: (old.content, old.size) != (new.content, new.size),
        "mode": old.mode != new.mode and old.kind != "symlink",  # Linux ignores the mode of a link
        "owner": (old.uid, old.gid) != (new.uid, new.gid),
    }
    return tuple(name for name, value in different.items() if value)


def with_moves(changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Join a removed file and an added file of the same content to a moved one. An empty file is never moved."""
    sources = defaultdict[str, list[LayerFile]](list)
    for change in changes:
        if change.before and change.after is None and change.before.kind == "file" and change.before.size:
            sources[change.before.content].append(change.before)
    moves, origins = dict[str, FileChange](), set[str]()
    for change in changes:
        new = change.after
        if change.before or new is None or new.kind != "file" or not (matches := sources.get(new.content)):
            continue
        name = posixpath.basename(new.path)
        old = next((file for file in matches if posixpath.basename(file.path) == name), matches[0])
        matches.remove(old)
        origins.add(old.path)
        moves[new.path] = FileChange(before=old, after=new, aspects=_aspects(old, new))
    return tuple(moves.get(change.path, change) for change in changes if change.after or change.path not in origins)
