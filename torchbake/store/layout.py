"""Built images: one OCI image layout for all images of a project, so that a layer is there once.

Tests, releases and signatures are of the bytes here; nothing is packed twice. The format is the OCI image
specification's: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import contextlib
import fcntl
import io
import json
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
from torchbake.errors import BuildError
from torchbake.oci.labels import ID, labels_in
from torchbake.oci.manifest import DIGEST, MANIFEST, Blob, Manifest, UnsoundError, sha256
from torchbake.oci.tar_member import member
from torchbake.store.blobs import WORK, Blobs, StoreEntry, locked


@dataclass(frozen=True, kw_only=True)
class Layout(Blobs):
    """The layout in ``folder``. Digests are those of manifests unless a method says otherwise.

    `find`, and all methods that use it, also take the digest of an image's config: the image's ID in Docker's classic
    store.
    """

    def find(self, digest: str) -> Manifest | None:
        """Return the manifest of an image if it and all its blobs are sound."""
        return self._whole(digest) or self._of_config(digest)

    def get(self, digest: str) -> Manifest:
        """Return the manifest of an image. Raises BuildError if `find` finds none."""
        manifest = self.find(digest)
        if manifest is None:
            raise BuildError(f"{self.folder} does not hold all of {digest}.", hint="Build it again, with --no-cache.")
        return manifest

    def _of_config(self, digest: str) -> Manifest | None:
        """Return the image with this config; `take` keeps one of each in the index."""
        return next((manifest for manifest in self._images() if manifest.config.digest == digest), None)

    def _images(self) -> list[Manifest]:
        """Return the sound images of the index."""
        return [*filter(None, map(self._whole, sorted(self._listed_digests())))]

    def _whole(self, digest: str) -> Manifest | None:
        manifest = self._manifest(digest)
        return manifest if manifest and all(map(self.holds, manifest.blobs)) else None

    def add(self, file: Path, blob: Blob) -> None:
        """Move a file in here whose digest was computed while it was written."""
        self._move(file, blob.digest)

    def write(self, manifest: Manifest, config: bytes) -> None:
        """Write an image's manifest and config; its layers come from elsewhere."""
        self._write(manifest.config.digest, config)
        self._write(manifest.digest, manifest.data)

    def archive(self, digest: str) -> Iterator[bytes]:
        """One image as a tar archive of a layout, in pieces, as engines load it.

        Raises BuildError when it is not here.
        """
        manifest = self.get(digest)
        for name, text in (_frame([manifest]) | _for_classic_stores(manifest)).items():
            yield from _member(name, io.BytesIO(text.encode()), len(text.encode()))
        for blob in (manifest.own, *manifest.blobs):
            path = self.path(blob.digest)
            with path.open("rb") as file:
                yield from _member(f"blobs/sha256/{path.name}", file, blob.size)
        yield bytes(2 * tarfile.BLOCKSIZE)

    @contextlib.contextmanager
    def write_lock(self) -> Iterator[Path]:
        """Make a folder for the exports of one run, and remove it at the end. Until then nothing here is removed."""
        own = partial(tempfile.TemporaryDirectory, prefix=WORK, ignore_cleanup_errors=True)
        with locked(self.folder / ".lock", fcntl.LOCK_SH), own(dir=self.folder) as folder:
            yield Path(folder)

    def configs(self) -> frozenset[str]:
        """Return the digests of the configs of all images here."""
        return frozenset(manifest.config.digest for manifest in self._images())

    def layers(self) -> dict[str, Blob]:
        """Return the packed layers of all images here, by the digests of their unpacked archives."""
        blobs: dict[str, Blob] = {}
        for manifest in self._images():
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                config = read_json(self.path(manifest.config.digest).read_bytes())
                blobs |= zip(config["rootfs"]["diff_ids"], manifest.layers, strict=True)
        return blobs

    def take(self, export: Path, digest: str) -> None:
        """Move an exported image in here, to be found by its digest. One of the same config leaves the index."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        for path in Layout(folder=export).blobs.iterdir():
            path.replace(self.blobs / path.name)
        with self._index() as listed:
            manifest = self._whole(digest)
            same = {one.digest for one in self._images() if manifest and one.config == manifest.config}
            self._list({*(listed - same), digest})
        shutil.rmtree(export)

    def tidy(self, digests: Iterable[str]) -> int:
        """Remove what no image of ``digests`` needs; return the bytes that this frees.

        While another process uses the layout, nothing is removed.
        """
        if not self.blobs.is_dir():
            return 0
        try:
            with self.alone():
                digests = {manifest.digest for digest in digests if (manifest := self.find(digest))}
                # First, so that a killed run leaves no image in the index that has lost a blob.
                self._list(digests)
                return self._remove(self._unused_files(self._needed_blobs(digests)))
        except BlockingIOError:
            return 0

    def entries(self) -> list[StoreEntry]:
        """Return all images of the index, by their ids."""
        return sorted(map(self._entry, self._listed_digests()), key=lambda entry: (entry.name, entry.key))

    def drop_incomplete(self) -> None:
        with self._index() as listed:
            self._list(listed)

    def _entry(self, digest: str) -> StoreEntry:
        manifest = self._manifest(digest)
        if manifest is None:
            return StoreEntry(key=digest, name="", blobs=(Blob(digest=digest, size=0),))
        name = ""
        with contextlib.suppress(OSError, ValueError):
            config = self.path(manifest.config.digest).read_bytes()
            name = labels_in(read_json(config)).get(ID, "") if sha256(config) == manifest.config.digest else ""
        return StoreEntry(key=digest, name=name, blobs=(manifest.own, *manifest.blobs))

    def _manifest(self, digest: str) -> Manifest | None:
        """Return a manifest if it has its digest and can be read."""
        try:
            manifest = Manifest(data=self.path(digest).read_bytes(), media_type=MANIFEST)
            return manifest if manifest.digest == digest and manifest.blobs else None
        except (OSError, UnsoundError):
            return None

    def _needed_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return the digests of all blobs of the images that are here."""
        manifests = [manifest for manifest in map(self.find, digests) if manifest]
        return {digest for each in manifests for digest in (each.digest, *(blob.digest for blob in each.blobs))}

    def _listed_digests(self) -> set[str]:
        """Return the digests of the index."""
        try:
            index = read_json((self.folder / "index.json").read_bytes())
            return {*filter(DIGEST.fullmatch, (str(entry["digest"]) for entry in index["manifests"]))}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return set()

    @contextlib.contextmanager
    def _index(self) -> Iterator[set[str]]:
        """Read the index, to be written again before anybody else does."""
        with locked(self.folder / ".index.lock", fcntl.LOCK_EX):
            yield self._listed_digests()

    def _list(self, digests: Iterable[str]) -> None:
        """Write the index, so that other tools find the images too."""
        manifests = [manifest for digest in sorted(digests) if (manifest := self.find(digest))]
        for name, text in _frame(manifests).items():
            write_text(self.folder / name, text)


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


def _for_classic_stores(manifest: Manifest) -> dict[str, str]:
    """The file in which `docker load` of a classic store looks for an image: it reads no index."""
    config, *layers = (
        f"blobs/sha256/{blob.digest.removeprefix('sha256:')}" for blob in (manifest.config, *manifest.layers)
    )
    return {"manifest.json": json.dumps([{"Config": config, "RepoTags": None, "Layers": layers}])}


def _member(name: str, file: IO[bytes], size: int) -> Iterator[bytes]:
    """One member of a tar archive."""
    info = tarfile.TarInfo(name)
    info.size = size
    yield from member(info, file, tarfile.GNU_FORMAT)
