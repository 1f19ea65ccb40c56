"""Platforms of images, such as ``linux/arm64`` or ``linux/arm/v7``, and the images of an index for one. Pure."""

from torchbake.errors import UsageError
from torchbake.oci.manifest import NO_IMAGE, Blob, Manifest

_UNKNOWN = "None/None"  # the platform of a descriptor that names none


def without_variant(platform: str) -> str:
    """Return the system and the architecture of a platform: ``linux/arm64`` for ``linux/arm64/v8``."""
    return "/".join(platform.split("/")[:2])


def fits(platform: str, other: str) -> bool:
    """Return whether two platforms have the same system and architecture."""
    return without_variant(platform) == without_variant(other)


def images_for(index: Manifest, platform: str, *, name: str) -> list[Blob]:
    """Return the images of an index for a platform: those of its variant if there are any, else those of others.

    Attestations are no images, and a descriptor without a platform fits each. Raises UsageError with ``name`` if the
    index has no image for the platform.
    """
    images = [(blob, where) for blob, where in index.images if where != NO_IMAGE]
    has_variant = any(where == platform for _, where in images)
    blobs = [
        blob for blob, where in images if where in (platform, _UNKNOWN) or (not has_variant and fits(where, platform))
    ]
    if not blobs:
        options = " or ".join(f"--platform {each}" for each in platforms_of(index))
        raise UsageError(
            f"{name} has no image for {platform}.",
            hint=f"Name a platform that it has: {options}" if options else "Is it an image? It names no platform.",
        )
    return blobs


def platforms_of(index: Manifest) -> list[str]:
    """Return the platforms of the images of an index, each once, in its order."""
    return list(dict.fromkeys(where for _, where in index.images if where not in (NO_IMAGE, _UNKNOWN)))
