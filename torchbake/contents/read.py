"""Read the inventory of an image from a layout, an archive, an engine or a registry."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from torchbake.contents.assemble import assemble
from torchbake.contents.image_archive import ImageArchive
from torchbake.contents.layer_cache import LayerCache
from torchbake.contents.model import Inventory
from torchbake.contents.progress import CountedFile, ReadProgress
from torchbake.contents.scan import LayerContents
from torchbake.contents.stored_image import StoredImage, choose_image, image_of_manifest
from torchbake.core.parallel import read_ahead, run_all
from torchbake.engine.client import Engine
from torchbake.engine.export import ChunkReader
from torchbake.errors import EngineError, RegistryError, UsageError
from torchbake.oci.layer_stream import LOOK, uncompressed
from torchbake.oci.manifest import INDEX, MANIFEST, Blob, Manifest, sha256, type_of
from torchbake.oci.platforms import fits
from torchbake.registry.client import Registry

_AT_ONCE = 3  # layers in parallel
_AHEAD = 32  # megabytes that an engine may send before they are read
_LARGEST_TEXT = 8 * 2**20  # bytes of a manifest or a config
_READABLE = "Copy the image into the folder again, or save it again."


@dataclass(frozen=True, kw_only=True)
class ImageReader:
    """Reads images for a platform, such as ``linux/amd64``. Every method raises EngineError for a damaged image.

    An index with no image for the platform raises UsageError; with ``only_platform``, another image than for this
    platform does too.
    """

    platform: str
    only_platform: bool = False
    cache: LayerCache
    progress: ReadProgress = field(default_factory=ReadProgress)

    def layout(self, name: str, folder: Path, digest: str = "") -> Inventory:
        """Read an image of an OCI image layout: that of a manifest's digest, else the only one."""

        def fetch(blob: Blob) -> Manifest | None:
            data = _small(_blob_path(folder, blob.digest))
            is_sound = data is not None and sha256(data) == blob.digest
            kind = type_of({"Content-Type": MANIFEST}, data or b"")
            return Manifest(data=data, media_type=kind) if data and is_sound else None

        if digest:
            top = fetch(Blob(digest=digest, size=0))
        else:
            data = _small(folder / "index.json")
            top = Manifest(data=data, media_type=INDEX) if data is not None else None
        if top is None:
            raise EngineError(f"{folder} holds no image {digest}".rstrip() + ".", hint=_READABLE)
        manifest = choose_image(top, self.platform, fetch, name, alone=not digest)
        config = _small(_blob_path(folder, manifest.config.digest)) or b""
        if sha256(config) != manifest.config.digest:
            raise EngineError(f"{folder} lacks {manifest.config.digest}, or it is damaged.", hint=_READABLE)

        def scan(blob: Blob) -> LayerContents:
            try:
                with _blob_path(folder, blob.digest).open("rb") as file:
                    return self.cache.scan(self._counted(file), blob.digest)
            except FileNotFoundError:
                raise EngineError(f"{folder} lacks the layer {blob.digest}.", hint=_READABLE) from None

        image = self._checked(name, image_of_manifest(manifest, config, name))
        return assemble(name, image, self._scan_all(manifest.layers, scan))

    def archive(self, name: str, path: Path) -> Inventory:
        """Read the only image of an archive, which may be compressed."""
        with path.open("rb") as file, uncompressed(file, file.peek(LOOK)[:LOOK]) as stream:
            image, contents = self._archive(name).read(stream, self.platform)
        return assemble(name, self._checked(name, image), contents)

    def engine(self, name: str, engine: Engine, image_id: str) -> Inventory:
        """Read an image of an engine by its ID, as `docker save` streams it."""
        key = f"{image_id}-{self.platform}"
        if image := self.cache.find_image(key):
            entries = {layer.digest: self.cache.find(layer.digest) for layer in image.layers}
            cache_hits = {digest: each for digest, each in entries.items() if each}
            if len(cache_hits) == len(entries):
                return assemble(name, self._checked(name, image), cache_hits)
        with engine.save(image_id) as pieces, read_ahead(pieces, most=_AHEAD) as received:
            stream: Any = ChunkReader(received)
            saved, contents = self._archive(name).read(stream, self.platform)
        if not engine.containerd_store:  # its ID is the config's digest, and it has no manifest
            saved = replace(saved, digest=image_id)
        self.cache.keep_image(key, saved)
        return assemble(name, self._checked(name, saved), contents)

    def registry(self, name: str, registry: Registry, key: str) -> Inventory:
        """Read an image of a registry by a tag or a digest: layers go through temporary files, a few at a time."""
        top = registry.manifest(key)
        if top is None:
            raise RegistryError(
                f"{registry.repository} does not have {key}.", hint=f"Is the name right? Try: docker pull {name}"
            )
        manifest = choose_image(top, self.platform, lambda blob: registry.manifest(blob.digest), name)
        image = self._checked(name, image_of_manifest(manifest, registry.read(manifest.config), name))

        def scan(blob: Blob) -> LayerContents:
            with tempfile.TemporaryDirectory(prefix="torchbake-layer-") as folder:
                path = Path(folder, "layer")
                registry.download(blob, path, _FileProgress(path, self.progress))
                with path.open("rb") as file:
                    return self.cache.scan(file, blob.digest)

        return assemble(name, image, self._scan_all(manifest.layers, scan))

    def _checked(self, name: str, image: StoredImage) -> StoredImage:
        """Return the image. Raises UsageError if it is for another platform than the only one."""
        if self.only_platform and not fits(image.platform, self.platform):
            raise UsageError(
                f"{name} is for {image.platform} alone, not for {self.platform}.",
                hint=f"Leave --platform out, or write --platform {image.platform}",
            )
        return image

    def _scan_all(self, layers: Sequence[Blob], scan: Callable[[Blob], LayerContents]) -> Mapping[str, LayerContents]:
        """Return the contents of layers by digest: from the cache, or by ``scan`` in parallel threads."""
        self.progress.begin(len(layers))

        def find(blob: Blob) -> LayerContents:
            contents = self.cache.find(blob.digest) or scan(blob)
            self.progress.end_layer()
            return contents

        blobs = list({blob.digest: blob for blob in layers}.values())
        contents = run_all(
            blobs, find, jobs=_AT_ONCE, stop=self.progress.stop, on_end=lambda _, future: future.result()
        )
        return {blob.digest: each for blob, each in zip(blobs, contents, strict=True)}

    def _archive(self, name: str) -> ImageArchive:
        return ImageArchive(name=name, cache=self.cache, progress=self.progress)

    def _counted(self, file: IO[bytes]) -> IO[bytes]:
        return cast(IO[bytes], CountedFile(file, self.progress))


class _FileProgress:
    """Counts the bytes of a file that is written, at each call."""

    def __init__(self, path: Path, progress: ReadProgress) -> None:
        self._path, self._progress, self._size = path, progress, 0

    def __call__(self) -> None:
        size = self._path.stat().st_size if self._path.exists() else 0
        self._progress.add(size - self._size)
        self._size = size


def _blob_path(folder: Path, digest: str) -> Path:
    return folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _small(path: Path) -> bytes | None:
    """Return the content of a small file; None if it does not exist or is too large."""
    try:
        return path.read_bytes() if path.stat().st_size <= _LARGEST_TEXT else None
    except FileNotFoundError:
        return None
