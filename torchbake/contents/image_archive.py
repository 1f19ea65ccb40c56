"""An archive of `docker save`, `podman save` or an OCI image layout, read in one pass: layers as they come.

Docker writes ``blobs/sha256/DIGEST`` with an ``index.json`` (from 25 on), earlier ``ID/layer.tar``, and podman
``DIFF_ID.tar``; both name config and layers in ``manifest.json``. Layers may come before the files that name them.
"""

import posixpath
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import IO, Any, cast

from torchbake.contents.layer_cache import LayerCache
from torchbake.contents.progress import ReadProgress
from torchbake.contents.scan import LayerContents
from torchbake.contents.stored_image import StoredImage, StoredLayer, choose_image, config_of, image_of_manifest
from torchbake.core.json_text import read_json, read_object
from torchbake.engine.export import ChunkReader
from torchbake.errors import EngineError, UsageError
from torchbake.oci.layer_stream import UNREADABLE, is_compressed
from torchbake.oci.layer_tar import LayerLimits, LayerTar
from torchbake.oci.manifest import DIGEST, INDEX, MANIFEST, Blob, Manifest, UnsoundError, sha256, type_of
from torchbake.oci.tree import clean_path

_BLOBS = "blobs/sha256/"
_SMALL = 8 * 2**20  # bytes of a file that is no layer; manifests and configs are smaller
_MOST_TEXT = 64 * 2**20  # bytes of all such files, which are kept until the end
_LIMITS = LayerLimits(bytes=2**42, entries=10_000)
_AGAIN = "Save it again: docker save -o image.tar IMAGE"


@dataclass(kw_only=True)
class ImageArchive:
    """An archive whose ``name`` is in errors. `read` reads it once."""

    name: str
    cache: LayerCache
    progress: ReadProgress
    _texts: dict[str, bytes] = field(default_factory=dict)
    _layers: dict[str, LayerContents] = field(default_factory=dict)
    _links: dict[str, str] = field(default_factory=dict)

    def read(self, file: IO[bytes], platform: str) -> tuple[StoredImage, Mapping[str, LayerContents]]:
        """Return the archive's image for a platform, and the contents of its layers by digest.

        Raises EngineError for a damaged archive or layer, and UsageError if the archive has not one such image.
        """
        try:
            archive = LayerTar(file, _LIMITS)
            for info in archive:
                self._take(archive, info)
        except UNREADABLE as error:
            raise EngineError(f"{self.name} cannot be read: {error}.", hint=_AGAIN) from None
        try:
            image = self._of_index(platform) or self._of_docker()
        except (ValueError, LookupError, TypeError, AttributeError, UnsoundError) as error:
            raise EngineError(f"{self.name} is not an archive of an image: {error}.", hint=_AGAIN) from None
        layers = {contents.digest: contents for contents in self._layers.values()}
        for layer in image.layers:
            if layer.digest not in layers:
                raise EngineError(f"{self.name} lacks the layer {layer.digest}.", hint=_AGAIN)
        return replace(image, layers=tuple(map(self._stored, image.layers))), layers

    def _take(self, archive: LayerTar, info: tarfile.TarInfo) -> None:
        path = clean_path(info.name)
        if info.issym() or info.islnk():
            self._links[path] = _target(path, info)
        if not info.isreg():
            return
        digest = f"sha256:{path.removeprefix(_BLOBS).removesuffix('.tar')}"
        if DIGEST.fullmatch(digest) and (cached := self.cache.find(digest)):
            self._layers[path] = cached
            self.progress.end_layer()
            return
        pieces = archive.content(info)
        first = next(pieces, b"")
        if _is_layer(first):
            content: Any = ChunkReader(self._counted(chain((first,), pieces)))
            self._layers[path] = self.cache.scan(content, digest if path.startswith(_BLOBS) else "")
            self.progress.end_layer()
        elif info.size <= _SMALL:
            self._texts[path] = b"".join((first, *pieces))
            if sum(map(len, self._texts.values())) > _MOST_TEXT:
                raise tarfile.ReadError(f"its small files have more than {_MOST_TEXT} bytes")

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.progress.add(len(piece))
            yield piece

    def _of_index(self, platform: str) -> StoredImage | None:
        """Return the image that ``index.json`` names; None if it names none."""
        if not read_object(self._texts.get("index.json", b"{}")).get("manifests"):
            return None
        index = Manifest(data=self._texts["index.json"], media_type=INDEX)
        manifest = choose_image(index, platform, self._manifest, self.name, alone=True)
        return image_of_manifest(manifest, self._blob(manifest.config), self.name)

    def _of_docker(self) -> StoredImage:
        """Return the image that ``manifest.json`` names. Raises ValueError, LookupError or TypeError."""
        if "manifest.json" not in self._texts:
            raise ValueError("it has neither an index.json nor a manifest.json")
        images = cast(list[dict[str, Any]], read_json(self._texts["manifest.json"]))
        if len(images) != 1:
            names = ", ".join(str(name) for image in images for name in image.get("RepoTags") or ("one without a tag",))
            raise UsageError(f"{self.name} holds {len(images)} images: {names}.", hint="Save one image.")
        config = self._texts[clean_path(images[0]["Config"])]
        paths = [self._links.get(path, path) for path in map(clean_path, images[0]["Layers"])]
        layers = tuple(StoredLayer(digest=self._layers[path].digest, compressed=None) for path in paths)
        return StoredImage(digest=sha256(config), config=config_of(config, len(layers), self.name), layers=layers)

    def _manifest(self, blob: Blob) -> Manifest | None:
        data = self._texts.get(_path(blob))
        if data is None or sha256(data) != blob.digest:
            return None
        return Manifest(data=data, media_type=type_of({"Content-Type": blob.media_type or MANIFEST}, data))

    def _blob(self, blob: Blob) -> bytes:
        data = self._texts.get(_path(blob), b"")
        if sha256(data) != blob.digest:
            raise ValueError(f"its configuration {blob.digest} is missing or damaged")
        return data

    def _stored(self, layer: StoredLayer) -> StoredLayer:
        """Return a layer with its size, if it is compressed here."""
        contents = next(each for each in self._layers.values() if each.digest == layer.digest)
        return StoredLayer(digest=layer.digest, compressed=contents.stored if contents.compressed else None)


def _path(blob: Blob) -> str:
    return _BLOBS + blob.digest.removeprefix("sha256:")


def _target(path: str, info: tarfile.TarInfo) -> str:
    """Return the path of the entry that a link points to."""
    if info.islnk():
        return clean_path(info.linkname)
    return clean_path(posixpath.join(posixpath.dirname(path), info.linkname))


def _is_layer(begin: bytes) -> bool:
    """Return whether a file that begins with these bytes is a tar archive, perhaps compressed."""
    if is_compressed(begin):
        return True
    try:
        tarfile.TarInfo.frombuf(begin[: tarfile.BLOCKSIZE], "utf-8", "backslashreplace")
    except tarfile.HeaderError as error:
        return isinstance(error, tarfile.EOFHeaderError)  # type: ignore[attr-defined]
    return True
