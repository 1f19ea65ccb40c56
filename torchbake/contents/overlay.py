"""The layers of an image put on each other: which entries a container sees, and which a later layer hides. Pure.

https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

import posixpath
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from torchbake.contents.model import FileKind, LayerFile
from torchbake.contents.scan import LayerContents, ScannedFile
from torchbake.oci.tree import ROOT, hiding_of, parents

_MOST_LINKS = 40  # that Linux follows in a path


@dataclass(frozen=True, kw_only=True)
class FolderLinks:
    """Finds real folders: engines follow links to folders, so that `lib/x` is `usr/lib/x` where `lib` is such a link.

    ``links`` are the targets of symbolic links by their paths.
    """

    links: dict[str, str]
    _real_folders: dict[str, str] = field(default_factory=dict)

    def real(self, path: str) -> str:
        """Return a path without links in the folders above it. A link at the path itself is not followed."""
        folder, slash, name = path.rpartition("/")
        if not slash:
            return path
        if folder not in self._real_folders:
            self._real_folders[folder] = self.followed(folder)
        return f"{self._real_folders[folder]}/{name}" if self._real_folders[folder] else name

    def followed(self, path: str) -> str:
        """Return a path without links, also at the path itself; "" is the root."""
        parts, path, followed = path.split("/")[::-1], "", 0
        while parts:
            path = f"{path}/{parts.pop()}".lstrip("/")
            target = self.links.get(path)
            if target is not None and followed < _MOST_LINKS:
                followed += 1
                target = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), target)).lstrip("/")
                parts += target.split("/")[::-1] if target else []
                path = ""
        return path


class ImageEntries:
    """The entries of the layers that were added, and which of them are visible.

    ``visible`` are the layers of visible entries by path, and ``links`` the targets of visible symbolic links.
    """

    def __init__(self) -> None:
        self.layers: list[dict[str, ScannedFile]] = []
        self.visible: dict[str, int] = {}
        self.links: dict[str, str] = {}
        self._hidden_by: dict[tuple[int, str], tuple[int, bool]] = {}
        self._below: dict[str, set[str]] = {}  # of each folder, the next paths

    def add(self, layer: LayerContents) -> FolderLinks:
        """Add the next layer, and return the links to folders that an engine follows while it unpacks this layer."""
        number, folders = len(self.layers), self._links_for(layer)
        real_files = {folders.real(file.path): file for file in layer.files}
        files = {path: _linked(file._replace(path=path), folders) for path, file in sorted(real_files.items())}
        leaves = [path for path, file in files.items() if file.kind != "folder"]
        hiding = hiding_of(map(folders.real, layer.whiteouts), leaves)
        if ROOT in hiding.covered:
            hidden_paths = [*self.visible]
            self._below.clear()
        else:
            hidden_paths = [path for path in hiding.removed if path in self.visible]
            hidden_paths += [
                path for folder in hiding.covered & self._below.keys() for path in self._take_below(folder)
            ]
        for path in hidden_paths:
            self._hide(path, number, files)
        self.layers.append(files)
        for path, file in files.items():
            self._show(path, file, number)
        return folders

    def files(self) -> Iterator[LayerFile]:
        """Yield all entries, sorted by layer and path."""
        for number, files in enumerate(self.layers):
            for path, file in files.items():
                hidden_by, replaced = self._hidden_by.get((number, path), (None, False))
                yield LayerFile(
                    path=path, layer=number, kind=file.kind, size=file.size, mode=file.mode, uid=file.uid,
                    gid=file.gid, content=file.content, gpu_code=file.gpu_code, hidden_by=hidden_by, replaced=replaced,
                )  # fmt: skip

    def _links_for(self, layer: LayerContents) -> FolderLinks:
        links = dict(self.links)
        for path in hiding_of(layer.whiteouts, ()).removed:
            links.pop(path, None)
        for file in layer.files:
            if file.kind == "symlink":
                links[file.path] = file.content
            else:
                links.pop(file.path, None)
        return FolderLinks(links=links)

    def _hide(self, path: str, number: int, files: Container[str]) -> None:
        layer = self.visible.pop(path, None)
        if layer is not None:
            self._hidden_by[layer, path] = number, path in files
            self.links.pop(path, None)

    def _show(self, path: str, file: ScannedFile, number: int) -> None:
        files = self.layers[number]
        self._hide(path, number, files)
        self.visible[path] = number
        if file.kind == "symlink":
            self.links[path] = file.content
        child = path
        for folder in parents(path):
            is_listed = folder in self._below
            self._below.setdefault(folder, set()).add(child)
            if is_listed:
                break
            if folder not in files and folder in self.visible and self._kind(folder) != "folder":
                self._hide(folder, number, files)  # this layer makes a folder of a file of a lower one
            child = folder

    def _kind(self, path: str) -> FileKind:
        return self.layers[self.visible[path]][path].kind

    def _take_below(self, folder: str) -> Iterator[str]:
        """Yield all paths below a folder, and forget that they are there."""
        folders = [folder]
        while folders:
            for path in self._below.pop(folders.pop(), ()):
                yield path
                folders.append(path)


def _linked(file: ScannedFile, folders: FolderLinks) -> ScannedFile:
    return file._replace(content=folders.real(file.content)) if file.kind == "hardlink" else file
