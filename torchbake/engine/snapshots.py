"""Layers that an engine need not unpack: whoever packs one has its files in hand, and writes them where it would.

An engine finds a layer's snapshot by the digests of the layers up to it, and unpacks nothing that is there. What is
written here is under no such name before it is whole. What a killed run leaves, the next one removes.
"""

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from pathlib import Path

from torchbake.engine.client import Engine
from torchbake.engine.containerd import Containerd, find_containerd
from torchbake.engine.owner import is_gone, owner_label
from torchbake.errors import EngineError
from torchbake.oci.layer_tree import tree_of
from torchbake.oci.manifest import sha256

_OURS = "torchbake/"
_NUMBER = "#"  # between whose it is and which, and that and the number of a snapshot to become a layer
_HELD = ".held"  # the folder with the names of layers that nothing may stand on yet


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A snapshot that is never committed: the ``folder`` of the files that will be."""

    containerd: Containerd
    key: str
    folder: Path
    numbers: "count[int]" = field(default_factory=count)


class Snapshots:
    """The layers of one run for one engine. It begins when it is first asked for a folder, and ends with `close`.

    Nothing fails here: a layer that cannot be put in its place is unpacked by the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, threading.Lock()
        self._begun: _Begun | None = None
        self._asked = False
        self._there: set[str] = set()

    def folder(self) -> Path | None:
        """Where the files of layers may be written, by `layer_tree`; None where only the engine can unpack."""
        with self._lock:
            if not self._asked:
                self._asked = True
                with contextlib.suppress(EngineError, OSError, LookupError, ValueError):
                    self._begun = _begin(self._engine)
            return self._begun.folder if self._begun else None

    @contextlib.contextmanager
    def put(self, config: str, diff_ids: Sequence[str]) -> Iterator[None]:
        """Put an image's layers in their places, from the lowest as far as their files are here, for who hands it over.

        Once that is done the image keeps them, and what it does not keep goes.
        """
        held: list[str] = []
        with self._lock:
            if self._begun:
                with contextlib.suppress(EngineError, OSError, LookupError, ValueError):
                    self._put(self._begun, diff_ids, held)
        try:
            yield
        finally:
            if self._begun and held:
                _let_go(self._begun, config, chain_ids(diff_ids)[-1], held)

    def close(self) -> None:
        """Remove what was written and not used."""
        with self._lock, contextlib.suppress(EngineError, OSError):
            begun, self._begun = self._begun, None
            if begun:
                _remove(begun.containerd, begun.key, begun.folder)

    def _put(self, begun: _Begun, diff_ids: Sequence[str], held: list[str]) -> None:
        for diff_id, parent, name in zip(diff_ids, ["", *chain_ids(diff_ids)], chain_ids(diff_ids), strict=False):
            if name not in self._there and not begun.containerd.has(name):
                tree = tree_of(begun.folder, diff_id)
                if not tree.is_dir():
                    return
                _commit(begun, tree, name, parent, held)
            self._there.add(name)


def chain_ids(diff_ids: Sequence[str]) -> list[str]:
    """What names each of these layers together with those below it, the lowest first.

    Source: https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid
    """
    return [*accumulate(diff_ids, lambda below, diff_id: sha256(f"{below} {diff_id}".encode()))]


def _begin(engine: Engine) -> _Begun | None:
    containerd, owner = find_containerd(engine), owner_label()
    if containerd is None or not owner:
        return None
    _remove_leftovers(containerd)
    key = f"{_OURS}{owner}{_NUMBER}{uuid.uuid4().hex}"
    folder = containerd.prepare(key)
    (folder / _HELD).mkdir()
    return _Begun(containerd=containerd, key=key, folder=folder)


def _commit(begun: _Begun, tree: Path, name: str, parent: str, held: list[str]) -> None:
    """Make the files of a tree the layer of a name, and move them for it."""
    key = f"{begun.key}{_NUMBER}{next(begun.numbers)}"
    folder = begun.containerd.prepare(key, parent)
    for entry in tree.iterdir():
        entry.rename(folder / entry.name)
    mark = _held(begun.folder, name)
    mark.touch()
    try:
        begun.containerd.commit(key, name)
    except EngineError:  # another run was quicker
        mark.unlink()
        begun.containerd.remove(key)
        raise
    held.append(name)


def _let_go(begun: _Begun, config: str, name: str, held: Sequence[str]) -> None:
    """Leave layers to an image; the engine does not do so by itself where it had nothing to unpack."""
    with contextlib.suppress(EngineError):  # the engine did not take it
        begun.containerd.let_stand(config, name)
    for layer in held:
        with contextlib.suppress(EngineError, OSError):
            begun.containerd.let_go(layer)
            _held(begun.folder, layer).unlink()


def _held(folder: Path, name: str) -> Path:
    return folder / _HELD / name.removeprefix("sha256:")


def _remove_leftovers(containerd: Containerd) -> None:
    """Remove what runs left that were killed."""
    for key in containerd.names():
        owner, _, number = key.removeprefix(_OURS).partition(_NUMBER)
        if not key.startswith(_OURS) or not is_gone(owner, same_machine=True):
            continue
        with contextlib.suppress(EngineError, OSError):
            if _NUMBER in number:
                containerd.remove(key)
            else:
                _remove(containerd, key, containerd.folder(key))


def _remove(containerd: Containerd, key: str, folder: Path) -> None:
    """Remove the files that a run has written; what it was still holding, it holds no more."""
    for held in (folder / _HELD).iterdir():
        with contextlib.suppress(EngineError):
            containerd.let_go(f"sha256:{held.name}")
    containerd.remove(key)
