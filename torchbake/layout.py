"""Packed images as BuildKit exported them: one OCI image layout for all, so that a layer is there once.

What is tested, published and signed is read from here; nothing is packed twice. The format is the OCI image
specification's: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import contextlib
import fcntl
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from torchbake.errors import BuildError
from torchbake.files import write_text
from torchbake.project import Project
from torchbake.registry import MANIFEST, Blob, Manifest

Compression: TypeAlias = Literal["zstd", "gzip"]
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
_CHUNK = 2**20
_MARK = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout in ``folder``, which need not be there. Digests are those of manifests unless said otherwise."""

    folder: Path

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs" / "sha256"

    def path(self, digest: str) -> Path:
        """Where the blob of any digest is, or would be."""
        return self.blobs / digest.removeprefix("sha256:")

    def find(self, digest: str) -> Manifest | None:
        """The manifest of an image that is here with all its blobs, each of the size it must have."""
        try:
            manifest = Manifest(data=self.path(digest).read_bytes(), media_type=MANIFEST)
        except OSError:
            return None
        whole = manifest.digest == digest and all(_size(self.path(blob.digest)) == blob.size for blob in manifest.blobs)
        return manifest if whole else None

    def lacks(self, digest: str, compression: Compression) -> str:
        """Why an image must be packed once more; empty when it is here, packed so."""
        manifest = self.find(digest)
        if manifest is None:
            return "not packed reproducibly yet"
        packed = {blob.media_type.rpartition("+")[2] for blob in manifest.layers}
        return "" if packed == {compression} else f"packed with {' and '.join(sorted(packed))}"

    def archive(self, digest: str) -> Iterator[bytes]:
        """One image as a tar archive of a layout, in pieces, as engines load it.

        Raises BuildError when it is not here.
        """
        manifest = self.find(digest)
        if manifest is None:
            raise BuildError(f"{self.folder} does not hold all of {digest}.", hint="Build it again, with --no-cache.")
        described = {"mediaType": manifest.media_type, "digest": digest, "size": len(manifest.data)}
        index = {"schemaVersion": 2, "manifests": [described]}
        yield from _packed("oci-layout", io.BytesIO(_MARK), len(_MARK))
        data = json.dumps(index).encode()
        yield from _packed("index.json", io.BytesIO(data), len(data))
        blobs = (Blob(digest=digest, size=len(manifest.data)), *manifest.blobs)
        for blob in {blob.digest: blob for blob in blobs}.values():
            path = self.path(blob.digest)
            with path.open("rb") as file:
                yield from _packed(f"blobs/sha256/{path.name}", file, blob.size)
        yield bytes(2 * tarfile.BLOCKSIZE)

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """While somebody exports into it, nobody tidies it."""
        with self._lock(fcntl.LOCK_SH):
            yield

    def tidy(self, kept: Iterable[str]) -> int:
        """Drop what no image of ``kept`` needs; the bytes that this frees. Nothing, while somebody exports into it."""
        if not self.blobs.is_dir():
            return 0
        try:
            with self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                return self._drop(kept)
        except BlockingIOError:
            return 0

    def _drop(self, kept: Iterable[str]) -> int:
        manifests = [manifest for manifest in map(self.find, kept) if manifest]
        needed = {blob.digest for manifest in manifests for blob in manifest.blobs}
        needed |= {manifest.digest for manifest in manifests}
        freed = 0
        for path in self.blobs.iterdir():
            if f"sha256:{path.name}" not in needed:
                freed += path.stat().st_size
                path.unlink()
        shutil.rmtree(self.folder / "ingest", ignore_errors=True)  # what killed exports left
        self._forget({manifest.digest for manifest in manifests})
        return freed

    def _forget(self, kept: set[str]) -> None:
        """Take what is gone out of the exporter's own list."""
        path = self.folder / "index.json"
        try:
            index = json.loads(path.read_text())
            index["manifests"] = [entry for entry in index["manifests"] if entry["digest"] in kept]
        except (OSError, ValueError, LookupError, TypeError):
            return
        write_text(path, json.dumps(index))

    @contextlib.contextmanager
    def _lock(self, how: int) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)


def layout_of(project: Project) -> Layout:
    """A project's own."""
    return Layout(folder=project.state / "layout")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _packed(name: str, file: "io.BufferedIOBase", size: int) -> Iterator[bytes]:
    """One member of a tar archive."""
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.GNU_FORMAT)
    while piece := file.read(_CHUNK):
        yield piece
    yield bytes(-size % tarfile.BLOCKSIZE)
