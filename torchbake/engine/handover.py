"""Layers handed to an engine's own containerd: as they are packed, and unpacked by whoever has their files in hand.

`docker load` copies what is packed through the engine, which unpacks it again. An engine finds a layer that is packed
by its digest, and its snapshot by the digests of the layers up to it: what is there, it neither takes nor unpacks.
Nothing is under such a name before it is whole. What a killed run leaves, the next one removes.
"""

import contextlib
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from torchbake.core.json_text import read_json
from torchbake.engine.client import Engine
from torchbake.engine.containerd import Containerd, find_containerd
from torchbake.engine.content_store import has_blob
from torchbake.engine.owner import is_gone, owner_label
from torchbake.errors import EngineError
from torchbake.oci.layer_order import chain_ids
from torchbake.oci.layer_tree import tree_of
from torchbake.oci.layout import Layout
from torchbake.oci.manifest import Manifest

_OURS = "torchbake/"
_NUMBER = "#"  # between whose it is and which, and that and the number of a snapshot to become a layer
_HELD = ".held"  # the folder with the names of what nothing may stand on yet
_LARGE = 2**20  # bytes; less is as quickly loaded
_unless_refused = partial(contextlib.suppress, EngineError, OSError, LookupError, ValueError)


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A snapshot that is never committed: the ``folder`` of the files that will be."""

    containerd: Containerd
    key: str
    folder: Path
    numbers: "count[int]" = field(default_factory=count)

    @contextlib.contextmanager
    def marked(self, held: "_Held") -> Iterator[None]:
        """Note that something will be held; it is not where that is refused, and may be where a run is ended."""
        mark = held.mark(self.folder)
        mark.touch()
        try:
            yield
        except (EngineError, OSError):
            mark.unlink()
            raise

    def let_go(self, held: "_Held") -> None:
        with _unless_refused():
            held.let_go(self.containerd)
            held.mark(self.folder).unlink()


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A packed layer by its digest, or a snapshot by its name, that nothing may stand on yet."""

    digest: str
    packed: bool

    def mark(self, folder: Path) -> Path:
        return folder / _HELD / f"{'packed' if self.packed else 'unpacked'}-{self.digest}"

    def let_go(self, containerd: Containerd) -> None:
        (containerd.let_go_blob if self.packed else containerd.let_go)(self.digest)


def _held_by(mark: Path) -> _Held:
    kind, _, digest = mark.name.partition("-")
    return _Held(digest=digest, packed=kind == "packed")


class Handover:
    """What one run hands to one engine. It begins when there is something to, and ends with `close`.

    Nothing fails here: what cannot be put in its place is the engine's to take in and to unpack.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._beginning, self._putting = threading.Lock(), threading.Lock()
        self._begun: _Begun | None = None
        self._asked = False
        self._there: set[str] = set()
        self._folders: dict[str, Path] = {}  # of layers that were put, by their digests
        self._unpacked: dict[str, str] = {}  # by the engine: the names of snapshots, by the digests of their layers

    def trees(self) -> Path | None:
        """Where the files of layers may be written, by `layer_tree`; None where only the engine can unpack."""
        begun = self._begin()
        return begun.folder if begun else None

    @contextlib.contextmanager
    def put(self, layout: Layout, digest: str) -> Iterator[None]:
        """Put an image's layers in their places while somebody loads it: it keeps them, and what it does not keep goes.

        Snapshots are made from the lowest as far as their files are here, or are unpacked above other layers.
        """
        manifest = layout.find(digest)
        begun = self._begin() if manifest else None
        if manifest is None or begun is None:
            yield
            return
        held: list[_Held] = []
        diff_ids = _diff_ids(layout, manifest)
        names = chain_ids(diff_ids)
        with self._putting:
            with _unless_refused():
                self._put_packed(begun, layout, manifest, held)
            with _unless_refused():
                self._put_unpacked(begun, dict(zip(names, diff_ids, strict=True)), held)
        try:
            yield
            self._unpacked.update(zip(diff_ids, names, strict=True))
        finally:
            # The engine does not do so by itself where it had nothing to unpack: what is here, or another image's too.
            with _unless_refused():
                begun.containerd.let_stand(manifest.config.digest, names[-1])
            for one in held:
                begun.let_go(one)

    def close(self) -> None:
        """Remove what was written and not used."""
        with self._beginning, _unless_refused():
            begun, self._begun = self._begun, None
            if begun:
                _remove(begun.containerd, begun.key, begun.folder)

    def _begin(self) -> _Begun | None:
        with self._beginning, _unless_refused():
            if not self._asked:
                self._asked = True
                self._begun = _begin(self._engine)
        return self._begun

    def _put_packed(self, begun: _Begun, layout: Layout, manifest: Manifest, held: list[_Held]) -> None:
        has = has_blob(self._engine)
        for blob in manifest.layers:
            if blob.size < _LARGE or has(blob):
                continue
            one = _Held(digest=blob.digest, packed=True)
            with begun.marked(one):
                begun.containerd.take_blob(layout.path(blob.digest), blob)
            held.append(one)

    def _put_unpacked(self, begun: _Begun, layers: Mapping[str, str], held: list[_Held]) -> None:
        """``layers`` are their digests by the names of their snapshots, the lowest first."""
        parent = ""
        for name, diff_id in layers.items():
            if name not in self._there and not begun.containerd.has(name):
                fill = self._filler(begun, diff_id)
                if fill is None:
                    return
                one, self._folders[diff_id] = _commit(begun, fill, name, parent)
                held.append(one)
            self._there.add(name)
            parent = name

    def _filler(self, begun: _Begun, diff_id: str) -> Callable[[Path], None] | None:
        """What fills a folder with a layer's files; None where they are not here."""
        tree, put, unpacked = tree_of(begun.folder, diff_id), self._folders.get(diff_id), self._unpacked.get(diff_id)
        if tree.is_dir():
            return partial(_move, tree)
        if put is None and unpacked:
            put = begun.containerd.committed_folder(unpacked, f"{begun.key}{_NUMBER}{next(begun.numbers)}")
        return partial(_link, put) if put else None


def _diff_ids(layout: Layout, manifest: Manifest) -> tuple[str, ...]:
    config = read_json(layout.path(manifest.config.digest).read_bytes())
    return tuple(map(str, config["rootfs"]["diff_ids"]))


def _begin(engine: Engine) -> _Begun | None:
    containerd, owner = find_containerd(engine), owner_label()
    if containerd is None or not owner:
        return None
    _remove_leftovers(containerd)
    key = f"{_OURS}{owner}{_NUMBER}{uuid.uuid4().hex}"
    folder = containerd.prepare(key)
    (folder / _HELD).mkdir()
    return _Begun(containerd=containerd, key=key, folder=folder)


def _commit(begun: _Begun, fill: Callable[[Path], None], name: str, parent: str) -> tuple[_Held, Path]:
    """Make files the layer of a name; returns the folder where they are too."""
    key, held = f"{begun.key}{_NUMBER}{next(begun.numbers)}", _Held(digest=name, packed=False)
    folder = begun.containerd.prepare(key, parent)
    try:
        fill(folder)
        with begun.marked(held):
            begun.containerd.commit(key, name)
    except (EngineError, OSError):  # or another run was quicker
        begun.containerd.remove(key)
        raise
    return held, folder


def _move(tree: Path, folder: Path) -> None:
    """Let a tree take the place of an empty folder, at once: nobody may take for a tree what is left of one."""
    tree.chmod(stat.S_IMODE(folder.stat().st_mode))
    tree.rename(folder)


def _link(put: Path, folder: Path) -> None:
    """Give the files of a layer, which nobody writes any more, other names: it stands on other layers here."""
    _link_below(put, folder)
    if not put.is_dir():  # it is renamed before it is emptied
        raise FileNotFoundError(put)


def _link_below(put: Path, folder: Path) -> None:
    """Folders are made as they are there, with their owners and what overlayfs notes of them; all else is linked."""
    with os.scandir(put) as entries:
        for entry in entries:
            new = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                new.mkdir()
                _link_below(Path(entry.path), new)
            else:
                os.link(entry.path, new, follow_symlinks=False)
    status = put.stat()
    os.chown(folder, status.st_uid, status.st_gid)
    shutil.copystat(put, folder)  # last: it sets the time


def _remove_leftovers(containerd: Containerd) -> None:
    """Remove what runs left that were killed."""
    for key in containerd.names():
        owner, _, number = key.removeprefix(_OURS).partition(_NUMBER)
        if not key.startswith(_OURS) or not is_gone(owner, same_machine=True):
            continue
        with _unless_refused():
            if _NUMBER in number:
                containerd.remove(key)
            else:
                _remove(containerd, key, containerd.folder(key))


def _remove(containerd: Containerd, key: str, folder: Path) -> None:
    """Remove the files that a run has written; what it was still holding, it holds no more."""
    for mark in (folder / _HELD).iterdir():
        with _unless_refused():
            _held_by(mark).let_go(containerd)
    containerd.remove(key)
