"""Layers that this machine has written, for the builds of all projects: by keys, each with its blobs.

A key is a digest of all that decides a layer. Two runs that want one layer at once pack it once.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torchbake.core.digest import file_digest
from torchbake.core.files import write_text
from torchbake.core.ownership import check_links
from torchbake.errors import BuildError
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import DIGEST, Blob
from torchbake.store.blobs import WORK, Blobs, StoreEntry, locked

_METADATA = ".dist-info/METADATA"
_SKEW = 86400.0  # seconds that the clocks of machines may differ which share a store


@dataclass(frozen=True, kw_only=True)
class PackedLayer:
    """The layer of one wheel, or of a step of a Dockerfile. ``names`` are all files of a wheel but its headers.

    ``headers`` is the archive of these, ``modules`` one of the layer's Python files, both also in the store; None where
    the wheel has none, or where nobody compiles modules.
    """

    layer: Layer
    names: tuple[str, ...]
    headers: Blob | None = None
    modules: Blob | None = None

    @property
    def blobs(self) -> tuple[Blob, ...]:
        return tuple(self.files.values())

    @property
    def files(self) -> dict[str, Blob]:
        """The blobs by the names of their files in the folder where a layer is packed."""
        blobs = {"layer": self.layer.blob, "headers": self.headers, "modules": self.modules}
        return {f"{name}.tar.zst": blob for name, blob in blobs.items() if blob}

    @property
    def wheel(self) -> str:
        """The wheel's name and version, the packages whose bytecode this is, or that it is a step of a Dockerfile."""
        if not self.names:
            return "a step of a Dockerfile"
        text = next((name for name in self.names if name.endswith(_METADATA) and name.count("/") == 1), None)
        if text:
            return text.removesuffix(_METADATA).replace("-", " ").replace("_", "-")
        tops = {name.removeprefix("__pycache__/").partition("/")[0].partition(".")[0] for name in self.names}
        return f"bytecode of {', '.join(sorted(tops))}"


# Fetches the layer of a key into a folder, as files of the names in `PackedLayer.files`. It returns None if it has no
# such
# layer. It calls the function in its last argument for each piece, which may raise to end the run.
FetchLayer: TypeAlias = Callable[[str, Path, Callable[[], object]], PackedLayer | None]


def fetch_none(key: str, folder: Path, go_on: Callable[[], object]) -> None:
    """Fetch no layer, so that every layer is packed."""


@dataclass(frozen=True, kw_only=True)
class LayerStore(Blobs):
    """The layers in ``folder``. A layer that ``fetch`` returns need not be packed."""

    fetch: FetchLayer = fetch_none

    @property
    def is_writable(self) -> bool:
        """Return whether layers can be added here."""
        return not self.folder.exists() or os.access(self.folder, os.W_OK)

    @property
    def records(self) -> Path:
        """The folder of the RECORDs of wheels that were packed here."""
        return self.folder / "records"

    def find(self, key: str) -> PackedLayer | None:
        """Return the layer of a key if all its blobs are sound, and note that it was used."""
        layer = self._read(key)
        if layer is None or not all(map(self.holds, layer.blobs)):
            return None
        with contextlib.suppress(OSError):  # a read-only store
            now = time.time()
            os.utime(self._record(key), (now, now))
        return layer

    def add(self, key: str, layer: PackedLayer, files: Mapping[str, Path]) -> None:
        """Keep a layer; ``files`` are its blobs by digest, on the store's file system, and are moved."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        for digest, file in files.items():
            self._move(file, digest)
        write_text(self._record(key), json.dumps({**asdict(layer), "names": list(layer.names)}) + "\n")

    def of_layers(self, digests: Collection[str]) -> dict[str, PackedLayer]:
        """Return the packed layers, by their keys, whose layer has one of these digests and whose blobs are sound."""
        layers = {f"sha256:{path.stem}": self._read(f"sha256:{path.stem}") for path in self._records()}
        matching = {key: layer for key, layer in layers.items() if layer and layer.layer.blob.digest in digests}
        return {key: layer for key, layer in matching.items() if all(map(self.holds, layer.blobs))}

    def sound(self, blob: Blob) -> Path:
        """Return the file of a blob. If it has another digest, remove it and raise BuildError.

        This is for blobs that no engine checks, because their content is unpacked here.
        """
        path = self.path(blob.digest)
        if file_digest(path) != blob.digest:
            path.unlink(missing_ok=True)
            raise BuildError(f"{path} is damaged, and was removed.", hint="Build again, which packs it again.")
        return path

    def drop_damaged(self, since: float) -> list[str]:
        """Remove layers that were used since a time and have a damaged or missing blob. Return their names.

        The time is in seconds since the epoch.
        """
        damaged = [
            entry
            for entry in self.entries()
            if (entry.last_use or 0) >= since and not all(map(self._is_sound, entry.blobs))
        ]
        for entry in damaged:
            self._record(entry.key).unlink(missing_ok=True)
            for blob in entry.blobs:
                self.path(blob.digest).unlink(missing_ok=True)
        return [entry.name for entry in damaged]

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[Path]:
        """Make an empty folder to pack in, and remove it at the end; of all runs, one has the turn of a key."""
        name = key.removeprefix("sha256:")
        work = self.folder / f"{WORK}{name[:16]}"
        check_links(work)
        with self.in_use(), locked(self.folder / "locks" / name, fcntl.LOCK_EX, remove=True):
            shutil.rmtree(work, ignore_errors=True)  # of a killed run
            work.mkdir(mode=0o700)  # uv's configuration there holds passwords of indexes
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def entries(self) -> list[StoreEntry]:
        """Return all layers; those used last come first."""
        now, entries = time.time(), []
        for path in self._records():
            key = f"sha256:{path.stem}"
            layer = self._read(key)
            if layer:
                used = path.stat().st_mtime
                # A time in the future was written before the clock was set back.
                last_use = used if used <= now + _SKEW else None
                entries.append(StoreEntry(key=key, name=layer.wheel, blobs=layer.blobs, last_use=last_use))
        return sorted(entries, key=_last_use, reverse=True)

    def drop_incomplete(self) -> None:
        for path in self._records():
            layer = self._read(f"sha256:{path.stem}")
            if layer is None or not all(map(self.size_fits, layer.blobs)):
                path.unlink(missing_ok=True)

    def tidy(self, most: int) -> int:
        """Remove the layers whose last use is the longest ago, until the others have at most ``most`` bytes.

        Return the bytes that this frees. While another process uses the store, nothing is removed.
        """
        if sum(path.stat().st_size for path in self.files()) <= most:
            return 0
        try:
            with self.alone():
                return self.remove_surplus(most)
        except BlockingIOError:
            return 0

    def remove_surplus(self, most: int) -> int:
        """Do what `tidy` does, for who holds the store `alone`."""
        return self._remove(self.surplus(most))

    def surplus(self, most: int) -> list[Path]:
        """Return the files that `tidy` removes: records and blobs, also of layers that are incomplete."""
        whole = [entry for entry in self.entries() if all(map(self.size_fits, entry.blobs))]
        removals = {entry.key for entry in evict(whole, most)}
        left = [entry for entry in whole if entry.key not in removals]
        records = {self._record(entry.key) for entry in left}
        needs = {blob.digest for entry in left for blob in entry.blobs}
        return [*(path for path in self._records() if path not in records), *self._unused_files(needs)]

    def _is_sound(self, blob: Blob) -> bool:
        try:
            return file_digest(self.path(blob.digest)) == blob.digest
        except OSError:
            return False

    def _read(self, key: str) -> PackedLayer | None:
        try:
            return read_packed(json.loads(self._record(key).read_text()))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _record(self, key: str) -> Path:
        return self.folder / "wheels" / f"{key.removeprefix('sha256:')}.json"

    def _records(self) -> list[Path]:
        return sorted((self.folder / "wheels").glob("[!.]*.json"))


def evict(entries: Iterable[StoreEntry], most: int) -> list[StoreEntry]:
    """Choose the layers to remove so that the others have at most ``most`` bytes: the last use longest ago first."""
    waiting: Sequence[StoreEntry] = sorted(entries, key=_last_use)
    sizes = {blob.digest: blob.size for entry in waiting for blob in entry.blobs}
    users = Counter(digest for entry in waiting for digest in {blob.digest for blob in entry.blobs})
    total, removals = sum(sizes.values()), list[StoreEntry]()
    for entry in waiting:
        if total <= most:
            break
        removals.append(entry)
        for digest in {blob.digest for blob in entry.blobs}:
            users[digest] -= 1
            total -= 0 if users[digest] else sizes[digest]
    return removals


def _last_use(entry: StoreEntry) -> float:
    return entry.last_use or 0.0


def read_packed(content: Mapping[str, Any]) -> PackedLayer:
    """Read a layer from JSON. Raises ValueError, LookupError or TypeError if it describes none."""
    layer = content["layer"]
    names: Iterable[str] = content["names"]
    return PackedLayer(
        layer=Layer(blob=_blob(layer["blob"]), diff_id=str(layer["diff_id"])),
        names=tuple(map(str, names)),
        headers=_blob(content["headers"]) if content["headers"] else None,
        modules=_blob(content["modules"]) if content["modules"] else None,
    )


def _blob(content: Mapping[str, Any]) -> Blob:
    blob = Blob(digest=str(content["digest"]), size=int(content["size"]), media_type=str(content["media_type"]))
    if not DIGEST.fullmatch(blob.digest):
        raise ValueError(blob.digest)
    return blob
