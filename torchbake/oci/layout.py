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
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from torchbake.core.files import write_text
from torchbake.core.json_text import read_json
from torchbake.core.ownership import check_links
from torchbake.errors import BuildError
from torchbake.oci.compression import Compression
from torchbake.oci.manifest import MANIFEST, Blob, Manifest, UnsoundError
from torchbake.oci.tar_member import member

_EXPORTS = ".exports-"


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
            sizes = {self.path(blob.digest).stat().st_size == blob.size for blob in manifest.blobs}
        except (OSError, UnsoundError):
            return None
        return manifest if manifest.digest == digest and sizes == {True} else None

    def write(self, manifest: Manifest, config: bytes) -> None:
        """Write an image's manifest and config; its layers come from elsewhere."""
        self.path(manifest.config.digest).write_bytes(config)
        self.path(manifest.digest).write_bytes(manifest.data)

    def lacks(self, digest: str, compression: Compression) -> str:
        """Why an image must be exported once more; empty when it is here and compressed so."""
        manifest = self.find(digest)
        if manifest is None:
            return "not exported reproducibly yet"
        found = {blob.media_type.rpartition("+")[2] for blob in manifest.layers}
        return "" if found == {compression} else f"compressed with {' and '.join(sorted(found))}"

    def archive(self, digest: str) -> Iterator[bytes]:
        """One image as a tar archive of a layout, in pieces, as engines load it.

        Raises BuildError when it is not here.
        """
        manifest = self.find(digest)
        if manifest is None:
            raise BuildError(f"{self.folder} does not hold all of {digest}.", hint="Build it again, with --no-cache.")
        for name, text in _frame([manifest]).items():
            yield from _member(name, io.BytesIO(text.encode()), len(text.encode()))
        for blob in (Blob(digest=digest, size=len(manifest.data)), *manifest.blobs):
            path = self.path(blob.digest)
            with path.open("rb") as file:
                yield from _member(f"blobs/sha256/{path.name}", file, blob.size)
        yield bytes(2 * tarfile.BLOCKSIZE)

    @contextlib.contextmanager
    def written(self) -> Iterator[Path]:
        """A new folder, for the exports of one run; with all that is left in it, it goes. Nobody tidies meanwhile."""
        own = partial(tempfile.TemporaryDirectory, prefix=_EXPORTS, ignore_cleanup_errors=True)
        with self._lock(fcntl.LOCK_SH), own(dir=self.folder) as folder:
            yield Path(folder)

    def lend(self, export: Path) -> None:
        """Put the blobs of all images here into the folder of an export: what is there is not written again."""
        lent = Layout(folder=export)
        lent.blobs.mkdir(parents=True)
        for blob in self._needed(self._listed()):
            with contextlib.suppress(OSError):  # a file system without links: it is written again
                lent.path(blob).hardlink_to(self.path(blob))

    def take(self, export: Path, digest: str) -> None:
        """Move an exported image in here, to be found by its digest."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        for path in Layout(folder=export).blobs.iterdir():
            path.replace(self.blobs / path.name)
        with self._lock(fcntl.LOCK_EX, ".index.lock"):
            self._list({*self._listed(), digest})
        shutil.rmtree(export)

    def tidy(self, kept: Iterable[str]) -> int:
        """Drop what no image of ``kept`` needs; the bytes that this frees. Nothing, while somebody exports into it."""
        if not self.blobs.is_dir():
            return 0
        try:
            with self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                return self._drop(set(kept))
        except BlockingIOError:
            return 0

    def _drop(self, kept: set[str]) -> int:
        needed, freed = self._needed(kept), 0
        for path in self.blobs.iterdir():
            if f"sha256:{path.name}" not in needed:
                freed += path.stat().st_size
                path.unlink()
        for left in self.folder.glob(f"{_EXPORTS}*"):  # by runs that were killed
            shutil.rmtree(left, ignore_errors=True)
        self._list(kept)
        return freed

    def _needed(self, digests: Iterable[str]) -> set[str]:
        """The digests of all blobs of those images that are here."""
        manifests = [manifest for manifest in map(self.find, digests) if manifest]
        return {digest for found in manifests for digest in (found.digest, *(blob.digest for blob in found.blobs))}

    def _listed(self) -> set[str]:
        try:
            index = read_json((self.folder / "index.json").read_bytes())
            return {str(entry["digest"]) for entry in index["manifests"]}
        except (OSError, ValueError, LookupError, TypeError):
            return set()

    def _list(self, digests: Iterable[str]) -> None:
        """Write the index, so that other tools find the images too."""
        manifests = [manifest for manifest in map(self.find, sorted(digests)) if manifest]
        for name, text in _frame(manifests).items():
            write_text(self.folder / name, text)

    @contextlib.contextmanager
    def _lock(self, how: int, name: str = ".lock") -> Iterator[None]:
        check_links(self.folder / name)
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)


def _frame(manifests: Iterable[Manifest]) -> dict[str, str]:
    """The files that make a folder of blobs a layout of these images, by name."""
    described = [
        {"mediaType": manifest.media_type, "digest": manifest.digest, "size": len(manifest.data)}
        for manifest in manifests
    ]
    return {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": described}),
    }


def _member(name: str, file: IO[bytes], size: int) -> Iterator[bytes]:
    """One member of a tar archive."""
    info = tarfile.TarInfo(name)
    info.size = size
    yield from member(info, file, tarfile.GNU_FORMAT)
