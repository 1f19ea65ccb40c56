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
from torchbake.oci.variants import Transported, compression_of, index_of
from torchbake.store.gzip_images import gzip_image
from torchbake.store.layout import Layout
from torchbake.ui.command import Command


@dataclass(frozen=True, kw_only=True)
class Ready:
    """An image that can be sent. Its tag will point at ``digest``, and ``config`` returns the digest of its config.

    In a dry run ``digest`` is "" if the image is not compressed yet.
    """

    digest: str
    config: Callable[[], str] = str


@dataclass(frozen=True, kw_only=True)
class Transport:
    """A source of images in one compression. ``built`` has images as they were built, ``gzip`` those of gzip.

    The function ``sent`` returns the digest of an image's manifest by its ID in the engine.
    """

    compression: Transported
    built: LayoutSource
    gzip: Layout
    sent: Callable[[str], str]
    _built: dict[str, str] = field(default_factory=dict)  # from the digest that is sent to the digest as built

    def prepare(self, image: str, *, dry: bool = False) -> Ready:
        """Compress an image by its ID in the engine, if it must be and this is no ``dry`` run.

        Raises EngineError and BuildError.
        """
        digest = self.sent(image)
        config = partial(self.built.config, digest)
        if self.compression == "zstd":
            return Ready(digest=digest, config=config)
        if dry and self.gzip.find(config()) is None:
            return Ready(digest="", config=config)
        with tempfile.TemporaryDirectory(prefix="torchbake-gzip-") as folder:
            content = self._compressed(self.built.take_out(digest, Path(folder), lambda _: True))
        self._built[content.manifest.digest] = digest
        return Ready(digest=content.manifest.digest, config=config)

    def take_out(self, digest: str, folder: Path, wanted: Callable[[str], bool]) -> Content:
        """Read an image that was prepared, as in `Source`."""
        built = self.built.take_out(self._built.get(digest, digest), folder, wanted)
        return built if self.compression == "zstd" else self._compressed(built)

    def tidy(self) -> None:
        """Remove images of gzip whose originals were removed or built again."""
        self.gzip.tidy(self.built.layout.configs())

    def _compressed(self, built: Content) -> Content:
        """Compress an image by gzip, unless it is compressed, and make an index if both compressions are wanted.

        Its base may be an uncompressed layer, which every client reads. Raises EngineError if it has no zstd layer.
        """
        manifest = self.gzip.find(built.manifest.config.digest) or gzip_image(built.manifest, built.folder, self.gzip)
        gzip = Content(manifest=manifest, folder=self.gzip.blobs, built=built)
        if self.compression == "gzip":
            return gzip
        there = compression_of([built.manifest])
        if "zstd" not in there:
            raise EngineError(
                f"{built.manifest.digest} has layers of {there}, and cannot be sent in both compressions.",
                hint=f"Build it again: {Command('build', 'ID --no-cache')}; or publish it with --compression gzip",
            )
        config = read_json(built.path(built.manifest.config).read_bytes())
        index = index_of(manifest, built.manifest, config)
        return replace(gzip, manifest=index, variants=(gzip, built))


def transport_of(engine: Engine | None, built: Layout, gzip: Layout, compression: Transported) -> Transport:
    """Return the transport of images of an engine, or of ``built`` alone if there is none.

    ``built`` and ``gzip`` are the layouts of both compressions.
    """
    source = source_of(engine, built)
    return Transport(compression=compression, built=source, gzip=gzip, sent=partial(sent_digest, engine, source))
