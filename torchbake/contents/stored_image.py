"""An image as a place stores it: its configuration and its layers, and the choice of one image of an index. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchbake.core.json_text import read_object
from torchbake.errors import EngineError, UsageError
from torchbake.oci.manifest import Blob, Manifest
from torchbake.oci.platforms import images_for

_DEEPEST = 4  # indexes within each other
_ANOTHER = "Is it an image? A chart, a signature or an SBOM has no files."


@dataclass(frozen=True, kw_only=True)
class StoredLayer:
    """A layer by the digest of its stored bytes, and their number if they are compressed."""

    digest: str
    compressed: int | None


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image: the digest by which its place knows it, its configuration, and its layers, the lowest first."""

    digest: str
    config: Mapping[str, Any]
    layers: tuple[StoredLayer, ...]

    @property
    def platform(self) -> str:
        """The platform, as in ``linux/arm64`` or ``linux/arm/v7``."""
        return "/".join(str(self.config[key]) for key in ("os", "architecture", "variant") if self.config.get(key))

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The digests of the layers' archives without compression."""
        return tuple(self.config["rootfs"]["diff_ids"])


def image_of_manifest(manifest: Manifest, config: bytes, name: str) -> StoredImage:
    """Return the image of a manifest and its config. Raises EngineError if they are no image's."""
    layers = tuple(StoredLayer(digest=blob.digest, compressed=blob.size) for blob in manifest.layers)
    return StoredImage(digest=manifest.digest, config=config_of(config, len(layers), name), layers=layers)


def config_of(data: bytes, layers: int, name: str) -> dict[str, Any]:
    """Read the configuration of an image with a number of layers. Raises EngineError for other data."""
    try:
        config = read_object(data)
        diff_ids = config["rootfs"]["diff_ids"]
        sound = isinstance(diff_ids, list) and all(isinstance(each, str) for each in diff_ids)
    except (ValueError, LookupError, TypeError):
        sound = False
    if not sound or len(diff_ids) != layers:
        raise EngineError(f"{name} has no configuration that names its {layers} layers.", hint=_ANOTHER)
    return config


def choose_image(
    manifest: Manifest, platform: str, fetch: Callable[[Blob], Manifest | None], name: str, *, alone: bool = False
) -> Manifest:
    """Return the manifest of an index's image for a platform; the manifest itself if it is an image's.

    Attestations are no images. If ``alone``, several images of the platform are an error, as in the index of a folder.
    Raises UsageError if no image is of the platform, and EngineError if ``fetch`` finds no manifest.
    """
    for _ in range(_DEEPEST):
        if not manifest.is_index:
            return manifest
        fitting = images_for(manifest, platform, name=name)
        digests = sorted({blob.digest for blob in fitting})
        if alone and len(digests) > 1:
            raise UsageError(f"{name} holds {len(digests)} images: {', '.join(digests)}.", hint=f"Name {name}@DIGEST")
        image = fetch(fitting[0])
        if image is None:
            raise EngineError(
                f"{name} lacks {fitting[0].digest}, which its index names.", hint="Pull or save it again."
            )
        manifest, alone = image, False
    raise EngineError(f"{name} has more than {_DEEPEST} indexes within each other.")
