"""Read the compressed content of an image from a layout or an engine."""

import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from torchbake.core.json_text import read_json
from torchbake.engine.client import Engine
from torchbake.errors import EngineError
from torchbake.oci.layer_stream import UNREADABLE, unpacked_digest
from torchbake.oci.manifest import INDEX, MANIFEST, Blob, Manifest
from torchbake.store.docker_archive import SavedArchive, known_layers
from torchbake.store.layout import Layout
from torchbake.ui.command import Command

_BLOBS = "blobs/sha256/"
_AGAIN = f"Build and test it again: {Command('build test', 'ID --no-cache')}"
_SMALL = 4 * 2**20  # bytes; manifests and configs are smaller, and are always read


class ChunkReader:
    """The chunks of an HTTP answer as a file that can be read once."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._chunk, self._read = iter(chunks), b"", 0

    def read(self, size: int = -1) -> bytes:
        pieces = list[bytes]()
        while size:
            if self._read == len(self._chunk):
                self._chunk, self._read = next(self._chunks, b""), 0
                if not self._chunk:
                    break
            end = len(self._chunk) if size < 0 else self._read + size
            pieces.append(self._chunk[self._read : end])
            self._read += len(pieces[-1])
            size -= len(pieces[-1]) if size > 0 else 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, kw_only=True)
class Content:
    """An image as files by digest in ``folder``, which may lack layers that were not ``wanted``.

    If ``manifest`` is an index, ``variants`` are its images. ``built_content`` is the original of a converted image,
    with the same config.
    """

    manifest: Manifest
    folder: Path
    variants: tuple["Content", ...] = ()
    built_content: "Content | None" = None

    @property
    def images(self) -> tuple["Content", ...]:
        """The images to send: those of an index in its order, or the only one."""
        return self.variants or (self,)

    @property
    def blobs(self) -> dict[Blob, Path]:
        """All blobs of the images, with their files."""
        return {blob: image.path(blob) for image in self.images for blob in image.manifest.blobs}

    def path(self, blob: Blob) -> Path:
        return self.folder / blob.digest.removeprefix("sha256:")


class ImageSource(Protocol):
    """A source of images."""

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        """Read an image once, and write small blobs and the layers whose digest is ``select`` into a folder."""


@dataclass(frozen=True, kw_only=True)
class LayoutSource:
    """The images of a layout, without a copy. Other images are read from ``otherwise``, if it is given."""

    layout: Layout
    otherwise: ImageSource | None = None

    def find(self, digest: str) -> Content | None:
        """Return an image of the layout; None if the layout does not have all of it."""
        manifest = self.layout.find(digest)
        return Content(manifest=manifest, folder=self.layout.blobs) if manifest else None

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        """Read an image. Raises BuildError if the layout does not have all of it and there is no other source."""
        if self.otherwise is None:
            return Content(manifest=self.layout.get(digest), folder=self.layout.blobs)
        return self.find(digest) or self.otherwise.take_out(digest, folder, select)

    def config(self, digest: str) -> str:
        """Return the digest of an image's config; an image outside of the layout is read as a whole."""
        with tempfile.TemporaryDirectory(prefix="torchbake-config-") as folder:
            return self.take_out(digest, Path(folder), lambda _: False).manifest.config.digest


@dataclass(frozen=True, kw_only=True)
class EngineSource:
    """The images of an engine.

    Compressed layers of a containerd store are copied without a change, so their digests stay the same. A classic store
    keeps uncompressed layers, which are compressed here.
    """

    engine: Engine

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        """Read the whole image, as `docker save` writes it."""
        if not self.engine.containerd_store:
            layout = Layout(folder=folder)
            return Content(manifest=save_image(self.engine, digest, layout), folder=layout.blobs)
        folder.mkdir(parents=True, exist_ok=True)
        with self.engine.save(digest) as pieces:
            stream: Any = ChunkReader(pieces)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    _take(archive, member, folder, select)
        path = folder / digest.removeprefix("sha256:")
        if not path.exists():
            raise EngineError(f"The engine did not save {digest}.")
        data = path.read_bytes()
        media_type = Manifest(data=data, media_type=MANIFEST).content.get("mediaType", MANIFEST)
        if media_type == INDEX:
            raise EngineError(f"{digest} is an index of several images.", hint=f"Build it again: {Command('build')}")
        return Content(manifest=Manifest(data=data, media_type=media_type), folder=folder)


def config_digest(engine: Engine | None, layout: Layout, digest: str) -> str:
    """Return the digest of an image's config, which does not depend on the compression of its layers.

    A containerd store does not report it, so an image outside of the layout is read as a whole. Without an engine the
    layout must have the image. Raises EngineError and BuildError.
    """
    return source_of(engine, layout).config(digest) if engine is None or engine.containerd_store else digest


def source_of(engine: Engine | None, layout: Layout) -> LayoutSource:
    """Return a source of the layout's images, and of the engine's if there is an engine."""
    return LayoutSource(layout=layout, otherwise=EngineSource(engine=engine) if engine else None)


def sent_digest(engine: Engine | None, source: LayoutSource, image: str) -> str:
    """Return the manifest's digest of an image, by its ID in the engine, or in the layout without an engine.

    An image of a classic store is saved into the layout, unless it is there. Raises EngineError and BuildError.
    """
    if engine is None:
        return source.layout.get(image).digest
    content, layout = source.find(image), source.layout
    if content or engine.containerd_store:
        return content.manifest.digest if content else image
    with layout.write_lock() as folder:
        manifest = save_image(engine, image, Layout(folder=folder / "saved"), layouts=[layout])
        layout.take(folder / "saved", manifest.digest)
    return manifest.digest


def save_image(
    engine: Engine, digest: str, layout: Layout, *, layouts: Sequence[Layout] = (), threads: int | None = -1
) -> Manifest:
    """Write an image of a classic store into a layout, and return its manifest. ``threads`` are as in `SavedArchive`.

    Layers in one of the ``layouts`` layouts are not compressed again. The digest of the config is the image's ID in the
    engine. Raises EngineError and BuildError.
    """
    with engine.save(digest) as pieces:
        stream: Any = ChunkReader(pieces)
        archive = SavedArchive(
            file=stream, diff_ids=engine.layers(digest), layers=known_layers(layouts), threads=threads
        )  # fmt: skip
        manifest = archive.write(layout)
    if manifest.config.digest != digest:
        raise EngineError(f"The engine saved {manifest.config.digest} in place of {digest}.")
    return manifest


def check_tested(content: Content, image: str) -> None:
    """Check that content is a classic store's image by its ID, the digest of its config. Raises EngineError.

    A config has the digests of unpacked layers, so all layers are unpacked.
    """
    if content.manifest.config.digest != image:
        raise EngineError(f"{image} was tested, and not {content.manifest.config.digest}.")
    try:
        diff_ids = read_json(content.path(content.manifest.config).read_bytes())["rootfs"]["diff_ids"]
        unpacked = [unpacked_digest(content.path(blob)) for blob in content.manifest.layers]
    except (*UNREADABLE, OSError, ValueError, LookupError, TypeError) as error:
        raise EngineError(f"{image} cannot be read: {error}.", hint=_AGAIN) from None
    if unpacked != diff_ids:
        raise EngineError(f"{image} was tested, and its packed layers are others.", hint=_AGAIN)


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, select: Callable[[str], bool]) -> None:
    name = member.name.removeprefix(_BLOBS)
    if not member.isfile() or name == member.name or not name.isalnum():
        return
    target = folder / name
    if target.exists() or (member.size > _SMALL and not select(f"sha256:{name}")):
        return
    source: IO[bytes] | None = archive.extractfile(member)
    assert source
    temporary = target.with_suffix(".part")
    with temporary.open("wb") as file:
        while piece := source.read(2**20):
            file.write(piece)
    temporary.rename(target)
