"""Layers of wheels that this machine has packed, for all its builds: by what decides them, and by their digests.

A layer is written beside and renamed when it is whole, so a run that is killed leaves no half of one. Whoever wants a
layer that is being packed waits for it.
"""

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchbake.build.wheel_records import WheelRecords
from torchbake.core.digest import file_digest
from torchbake.core.files import write_text
from torchbake.core.ownership import check_links
from torchbake.errors import BuildError
from torchbake.oci.layer_order import Layer
from torchbake.oci.manifest import DIGEST, Blob

_WORK = ".packing-"


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The layer of one wheel. ``names`` are all its files, those kept aside as headers not among them.

    ``headers`` is the archive of these, ``modules`` one of the layer's Python files, both also in the store; None where
    the wheel has none, or where nobody compiles modules.
    """

    layer: Layer
    names: tuple[str, ...]
    headers: Blob | None = None
    modules: Blob | None = None

    @property
    def blobs(self) -> tuple[Blob, ...]:
        return (self.layer.blob, *(blob for blob in (self.headers, self.modules) if blob))


@dataclass(frozen=True, kw_only=True)
class LayerStore:
    """The store in ``folder``, which need not be there. A key is a digest of all that decides a layer."""

    folder: Path

    @property
    def records(self) -> WheelRecords:
        """The RECORDs of wheels that were packed here, as their archives have them."""
        return WheelRecords(folder=self.folder / "records")

    def path(self, digest: str) -> Path:
        """Where the blob of a digest is, or would be."""
        return self.folder / "blobs/sha256" / digest.removeprefix("sha256:")

    def find(self, key: str) -> Packed | None:
        """What is kept under a key, with all its blobs, each of the size it must have."""
        try:
            packed = read_packed(json.loads(self._record(key).read_text()))
            whole = all(self.path(blob.digest).stat().st_size == blob.size for blob in packed.blobs)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return packed if whole else None

    def add(self, key: str, packed: Packed, files: Mapping[str, Path]) -> None:
        """Keep a layer; ``files`` are its blobs by digest, on the store's file system, and are moved."""
        for digest, file in files.items():
            self.path(digest).parent.mkdir(parents=True, exist_ok=True)
            file.replace(self.path(digest))
        write_text(self._record(key), json.dumps({**asdict(packed), "names": list(packed.names)}) + "\n")

    def sound(self, blob: Blob) -> Path:
        """Return the file of a blob. If it has another digest, remove it and raise BuildError.

        This is for blobs that no engine checks, because their content is unpacked here.
        """
        path = self.path(blob.digest)
        if file_digest(path) != blob.digest:
            path.unlink(missing_ok=True)
            raise BuildError(f"{path} is damaged, and was removed.", hint="Build again, which packs it again.")
        return path

    def drop_damaged(self, key: str) -> bool:
        """Drop a layer some of whose bytes changed, so that it is packed anew; whether it was one."""
        packed = self.find(key)
        if packed is None or all(file_digest(self.path(blob.digest)) == blob.digest for blob in packed.blobs):
            return False
        self._record(key).unlink(missing_ok=True)
        for blob in packed.blobs:
            self.path(blob.digest).unlink(missing_ok=True)
        return True

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[Path]:
        """An empty folder to pack in, which goes with all that is left in it; one run at a time for each key."""
        from filelock import FileLock  # noqa: PLC0415 - it brings asyncio, and layers are hardly ever packed

        name = key.removeprefix("sha256:")
        locks, work = self.folder / "locks", self.folder / f"{_WORK}{name[:16]}"
        check_links(work)
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / name):
            shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
            work.mkdir(mode=0o700)  # what uv is told holds passwords of indexes
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def _record(self, key: str) -> Path:
        return self.folder / "wheels" / f"{key.removeprefix('sha256:')}.json"


def read_packed(told: Mapping[str, Any]) -> Packed:
    """A layer as JSON tells it. Raises ValueError, LookupError or TypeError for what tells none."""
    layer = told["layer"]
    names: Iterable[str] = told["names"]
    return Packed(
        layer=Layer(blob=_blob(layer["blob"]), diff_id=str(layer["diff_id"])),
        names=tuple(map(str, names)),
        headers=_blob(told["headers"]) if told["headers"] else None,
        modules=_blob(told["modules"]) if told["modules"] else None,
    )


def _blob(told: Mapping[str, Any]) -> Blob:
    blob = Blob(digest=str(told["digest"]), size=int(told["size"]), media_type=str(told["media_type"]))
    if not DIGEST.fullmatch(blob.digest):
        raise ValueError(blob.digest)
    return blob
