"""The image that a builder exports, with layers, history and config that torchbake writes.

BuildKit and podman, and versions of each, write other archives of the same files: in another order, with folders that
did not change, with traces of the container. Of each layer above the base only the changes to the files below are
written, so the image does not depend on the builder.
"""

import contextlib
import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from torchbake.core.files import linked
from torchbake.core.json_text import read_object
from torchbake.errors import BuildError
from torchbake.oci.layer_archive import MEDIA_TYPE, compress_layer, write_layer
from torchbake.oci.layer_order import Layer, chain_ids, json_bytes, manifest_of
from torchbake.oci.layer_stream import LOOK, UNREADABLE, uncompressed
from torchbake.oci.layer_tree import members, read_changes
from torchbake.oci.manifest import Blob, Manifest, sha256
from torchbake.oci.tree import FORM, FileNode, HistoryStep, Tree, apply, difference, parents, restore
from torchbake.store.docker_archive import known_layers, link_layer
from torchbake.store.layers import LayerStore, PackedLayer
from torchbake.store.layout import Layout

_LAYER = "layer"
_EMPTY = f"sha256:{hashlib.sha256(bytes(tarfile.RECORDSIZE)).hexdigest()}"  # the archive of no entries
_NO_CONTENT = hashlib.sha256().hexdigest()
# Each container has its own of these, so what a builder leaves there is a mount point.
_MOUNTED = ("proc", "sys", "dev")
# A builder mounts these files, and leaves empty ones.
_MOUNTED_FILES = ("etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv", "run/.containerenv")
# Settings of a container, by the OCI image specification; the last three are Docker's.
_SETTINGS = (
    "User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels", "StopSignal",
    "Healthcheck", "Shell", "OnBuild",
)  # fmt: skip
_BUILDERS_LABEL = "io.buildah.version"
_Write: TypeAlias = Callable[[Path, IO[bytes]], Layer]  # writes a layer of an archive into a file


@dataclass(frozen=True, kw_only=True)
class OwnLayers:
    """Writes the layers of images. No file in them is later than ``epoch``, in seconds.

    ``store`` keeps the layers, so a layer that did not change is not written again. ``base`` is the layout of a
    bootstrapped base image, whose layers stay as they are.
    """

    store: LayerStore
    epoch: int
    base: Layout | None = None

    def write(self, export: Layout, digest: str, *, steps: Sequence[HistoryStep], created: str) -> Manifest:
        """Write an exported image in place, and return its new manifest.

        ``steps`` are the last ones of its history, in the words that it gets. ``created`` is the time of the image, as
        RFC 3339. Raises BuildError and OSError.
        """
        manifest = export.get(digest)  # which compares all digests
        try:
            config = read_object(export.path(manifest.config.digest).read_bytes())
            history = _history(config, steps)
            diff_ids = cast(list[str], config["rootfs"]["diff_ids"])
            last = history[len(history) - len(steps) :]
            remaining = [step for step, entry in zip(steps, last, strict=True) if not entry.get("empty_layer")]
            layers = self._layers(export, list(zip(diff_ids, manifest.layers, strict=True)), remaining)
        except (*UNREADABLE, ValueError, LookupError, TypeError, AttributeError) as error:
            why = f"The builder exported an image that cannot be read: {error}."
            raise BuildError(why, hint="Build it again.") from None
        data = json_bytes(_config(config, layers, history, created))
        new = manifest_of(data, [layer for layer in layers if layer.diff_id != _EMPTY])
        export.write(new, data)
        _drop_others(export, new)
        return export.get(new.digest)

    def _layers(
        self, export: Layout, exported: Sequence[tuple[str, Blob]], steps: Sequence[HistoryStep]
    ) -> list[Layer]:
        """Write the layers of an image. ``steps`` are the steps of the layers above its base."""
        known_names = known_layers([self.base] if self.base else [])
        layers, view, below = list[Layer](), _View(export), len(exported) - len(steps)
        for number, (diff_id, blob) in enumerate(exported):
            if number >= below:
                mounts = steps[number - below].mounts
                layer = self._own(
                    export, blob, self._key(diff_id, layers, mounts), partial(self._changes, view, mounts)
                )
            elif diff_id in known_names:
                layer = link_layer(known_names, diff_id, export)
            else:
                key = sha256(f"{MEDIA_TYPE} {diff_id}".encode())
                layer = self._own(export, blob, key, partial(compress_layer, threads=-1))
            layers.append(layer)
            view.add(layer)
        return layers

    def _key(self, diff_id: str, below: Sequence[Layer], mounts: Sequence[str]) -> str:
        *_, chain = ("", *chain_ids(layer.diff_id for layer in below))
        return sha256(f"{FORM} {self.epoch} {chain} {diff_id} {' '.join(mounts)}".encode())

    def _own(self, export: Layout, blob: Blob, key: str, write: _Write) -> Layer:
        """Put a layer into the export that is written of another one, unless the store has it."""
        packed = self.store.find(key)
        if packed is None and not self.store.is_writable:
            with tempfile.TemporaryDirectory(dir=export.folder) as work:
                layer = _write(export, blob, Path(work), write)
                Path(work, _LAYER).replace(export.path(layer.blob.digest))
                return layer
        if packed is None:
            with self.store.turn(key) as folder:
                packed = self.store.find(key)  # another run may have had the turn before
                if packed is None:
                    packed = PackedLayer(layer=_write(export, blob, folder, write), names=())
                    self.store.add(key, packed, {packed.layer.blob.digest: folder / _LAYER})
        linked(self.store.path(packed.layer.blob.digest), export.path(packed.layer.blob.digest))
        return packed.layer

    def _changes(self, view: "_View", mounts: Sequence[str], target: Path, file: IO[bytes]) -> Layer:
        """Write the changes that a layer makes to the files of a view."""
        before = view.tree
        with tarfile.open(fileobj=file, mode="r:") as archive:
            after = apply(before, read_changes(archive))
            changes = difference(before, _without_traces(before, after, mounts))
            return write_layer(target, members(changes, archive, self.epoch), threads=-1)


@dataclass(kw_only=False)
class _View:
    """The files of layers that are written, read when they are first needed."""

    layout: Layout
    layers: list[Layer] = field(default_factory=list)
    read: dict[str, FileNode] = field(default_factory=dict)

    def add(self, layer: Layer) -> None:
        self.layers.append(layer)

    @property
    def tree(self) -> Tree:
        for layer in self.layers:
            with (
                self.layout.path(layer.blob.digest).open("rb") as file,
                uncompressed(file, file.peek(LOOK)[:LOOK]) as stream,
                tarfile.open(fileobj=stream, mode="r|") as archive,
            ):
                self.read = apply(self.read, read_changes(archive))
        self.layers.clear()
        return self.read


def _without_traces(before: Tree, after: Tree, mounts: Sequence[str]) -> Tree:
    """Return a tree without what builders leave behind of their containers, and where a step mounts something."""
    files = (path for path in _MOUNTED_FILES if path in after and after[path].content == _NO_CONTENT)
    traces = (*_MOUNTED, *files, *mounts)
    tree = restore(before, after, traces)
    remaining = {folder for path in traces for folder in parents(path)} - before.keys()
    used = {folder for path in tree if path not in remaining for folder in parents(path)}
    return {path: node for path, node in tree.items() if path not in remaining or path in used}


def _write(export: Layout, blob: Blob, work: Path, write: _Write) -> Layer:
    with _archive(export.path(blob.digest), work) as file:
        return write(work / _LAYER, file)


@contextlib.contextmanager
def _archive(path: Path, work: Path) -> Iterator[IO[bytes]]:
    """Open the archive of a layer for reading at any place."""
    with path.open("rb") as file:
        begin = file.peek(LOOK)[:LOOK]
        with uncompressed(file, begin) as stream:
            if stream is file:
                yield file
                return
            with tempfile.TemporaryFile(dir=work) as copy:
                shutil.copyfileobj(stream, copy, 2**20)
                copy.seek(0)
                yield copy


def _history(config: Mapping[str, Any], steps: Sequence[HistoryStep]) -> list[dict[str, Any]]:
    """Return the history of an image with the texts of ``steps`` for its last steps."""
    value = config.get("history") or []
    if len(value) < len(steps):
        raise BuildError(f"The builder recorded {len(value)} of {len(steps)} steps, so its layers have no commands.")
    texts = [str(step.get("created_by", "")).strip() for step in value[: len(value) - len(steps)]]
    texts += [step.text for step in steps]
    return [{**step, "created_by": text} for step, text in zip(value, texts, strict=True)]


def _config(
    config: Mapping[str, Any], layers: Sequence[Layer], history: Sequence[Mapping[str, Any]], created: str
) -> dict[str, Any]:
    """Return a config in torchbake's form: without the builder's own labels, and without layers that change nothing."""
    matches = dict(config.get("config") or {})
    labels = {name: value for name, value in (matches.get("Labels") or {}).items() if name != _BUILDERS_LABEL}
    matches |= {"Labels": dict(sorted(labels.items())), "WorkingDir": matches.get("WorkingDir") or "/"}
    matches["Env"] = sorted(matches.get("Env") or (), key=lambda variable: variable.partition("=")[0])
    remaining = iter(layers)
    steps = [
        {"created": created, "created_by": step["created_by"]}
        | ({"empty_layer": True} if step.get("empty_layer") or next(remaining).diff_id == _EMPTY else {})
        for step in history
    ]
    return {
        "created": created,
        **{name: config[name] for name in ("architecture", "variant", "os", "os.version") if config.get(name)},
        "config": {name: matches[name] for name in _SETTINGS if matches.get(name)},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers if layer.diff_id != _EMPTY]},
        "history": steps,
    }


def _drop_others(export: Layout, manifest: Manifest) -> None:
    """Remove the blobs of the builder's image."""
    paths = {export.path(digest) for digest in (manifest.digest, *(blob.digest for blob in manifest.blobs))}
    for path in export.files():
        if path not in paths:
            path.unlink()
