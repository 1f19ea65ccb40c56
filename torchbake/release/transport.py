"""Prepare images for a registry: as they were built, compressed by gzip, or in both compressions behind one index.

All forms of an image have the same config.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torchbake.core.json_text import read_json
from torchbake.engine.client import Engine
from torchbake.engine.export import Content, LayoutSource, sent_digest, source_of
from torchbake.errors import EngineError
from torchbake.oci.variants import CompressionName, compression_of, index_of
from torchbake.store.gzip_images import gzip_image
from torchbake.store.layout import Layout
from torchbake.ui.command import Command


@dataclass(frozen=True, kw_only=True)
class ReadyImage:
    """An image that can be sent. Its tag will point at ``digest``, and ``config`` returns the digest of its config.

    In a dry run ``digest`` is "" if the image is not compressed yet.
    """

    digest: str
    config: Callable[[], str] = str


@dataclass(frozen=True, kw_only=True)
class ImageTransport:
    """A source of images in one compression. ``built_images`` has images as they were built, ``gzip`` those of gzip.

    The function ``target_digest`` returns the digest of an image's manifest by its ID in the engine.
    """

    compression: CompressionName
    built_images: LayoutSource
    gzip: Layout
    target_digest: Callable[[str], str]
    _built_digests: dict[str, str] = field(default_factory=dict)  # from the digest that is sent to the digest as built

    def prepare(self, image: str, *, dry: bool = False) -> ReadyImage:
        """Compress an image by its ID in the engine, if it must be and this is no ``dry`` run.

        Raises EngineError and BuildError.
        """
        digest = self.target_digest(image)
        config = partial(self.built_images.config, digest)
        if self.compression == "zstd":
            return ReadyImage(digest=digest, config=config)
        if dry and self.gzip.find(config()) is None:
            return ReadyImage(digest="", config=config)
        with tempfile.TemporaryDirectory(prefix="torchbake-gzip-") as folder:
            content = self._compress(self.built_images.take_out(digest, Path(folder), lambda _: True))
        self._built_digests[content.manifest.digest] = digest
        return ReadyImage(digest=content.manifest.digest, config=config)

    def take_out(self, digest: str, folder: Path, select: Callable[[str], bool]) -> Content:
        """Read an image that was prepared, as in `Source`."""
        content = self.built_images.take_out(self._built_digests.get(digest, digest), folder, select)
        return content if self.compression == "zstd" else self._compress(content)

    def tidy(self) -> None:
        """Remove images of gzip whose originals were removed or built again."""
        self.gzip.tidy(self.built_images.layout.configs())

    def _compress(self, content: Content) -> Content:
        """Compress an image by gzip, unless it is compressed, and make an index if both compressions are wanted.

        Its base may be an uncompressed layer, which every client reads. Raises EngineError if it has no zstd layer.
        """
        manifest = self.gzip.find(content.manifest.config.digest) or gzip_image(
            content.manifest, content.folder, self.gzip
        )
        gzip = Content(manifest=manifest, folder=self.gzip.blobs, built_content=content)
        if self.compression == "gzip":
            return gzip
        there = compression_of([content.manifest])
        if "zstd" not in there:
            raise EngineError(
                f"{content.manifest.digest} has layers of {there}, and cannot be sent in both compressions.",
                hint=f"Build it again: {Command('build', 'ID --no-cache')}; or publish it with --compression gzip",
            )
        config = read_json(content.path(content.manifest.config).read_bytes())
        index = index_of(manifest, content.manifest, config)
        return replace(gzip, manifest=index, variants=(gzip, content))


def transport_of(engine: Engine | None, layout: Layout, gzip: Layout, compression: CompressionName) -> ImageTransport:
    """Return the transport of images of an engine, or of ``layout`` alone if there is none.

    ``layout`` and ``gzip`` are the layouts of both compressions.
    """
    source = source_of(engine, layout)
    return ImageTransport(
        compression=compression, built_images=source, gzip=gzip, target_digest=partial(sent_digest, engine, source)
    )
