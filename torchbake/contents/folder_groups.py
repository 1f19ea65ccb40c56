"""Many paths that differ as a few folders. Pure."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from torchbake.contents.file_changes import FileChange


@dataclass(frozen=True, kw_only=True)
class FolderChanges:
    """The changes below a folder, whose path ends in a slash; or one change, with its own path."""

    path: str
    changes: tuple[FileChange, ...]

    @property
    def size_before(self) -> int:
        return sum(change.size_before for change in self.changes)

    @property
    def size_after(self) -> int:
        return sum(change.size_after for change in self.changes)

    @property
    def origin(self) -> str:
        """The folder or the path from which everything was moved; empty if something was not, or from several."""
        origins = [change.before.path for change in self.changes if change.before and change.state == "moved"]
        if len(origins) < len(self.changes):
            return ""
        if len(self.changes) == 1:
            return origins[0]
        rests = {change.path.removeprefix(self.path) for change in self.changes}
        folders = {old.removesuffix(rest) for old in origins for rest in rests if old.endswith(f"/{rest}")}
        return folders.pop() if len(folders) == 1 else ""


def by_folder(changes: Sequence[FileChange], rows: int) -> tuple[FolderChanges, ...]:
    """Group changes into some ``rows`` of folders and files, in order; the folders with most bytes are split first.

    More rows come only of folders and files below the root itself, which is always split.
    """
    waiting, final = [_entry("", changes)], list[FolderChanges]()
    while waiting:
        *_, folder, own = heapq.heappop(waiting)
        parts = defaultdict[str, list[FileChange]](list)
        for change in own:
            name, slash, _ = change.path[len(folder) :].partition("/")
            parts[f"{folder}{name}{slash}"].append(change)
        if len(own) == 1:
            final.append(FolderChanges(path=own[0].path, changes=own))
        elif folder not in parts and (not folder or len(final) + len(waiting) + len(parts) <= rows):
            for path, part in parts.items():
                heapq.heappush(waiting, _entry(path, part))
        elif own:
            final.append(FolderChanges(path=folder, changes=own))
    return tuple(sorted(final, key=lambda group: group.path))


def _entry(folder: str, changes: Sequence[FileChange]) -> tuple[int, int, str, tuple[FileChange, ...]]:
    sizes = sum(max(change.size_before, change.size_after) for change in changes)
    return -sizes, -len(changes), folder, tuple(changes)
