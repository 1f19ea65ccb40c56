"""The images of a tag: one image, or the images of an index, which are its platforms and their variants."""

from collections.abc import Iterator

from torchbake.oci.manifest import NO_IMAGE, Manifest, UnsoundError
from torchbake.oci.platforms import fits, without_variant
from torchbake.registry.client import Registry

_MOST = 64  # images of one index


def images_of(registry: Registry, manifest: Manifest, platform: str = "") -> Iterator[Manifest]:
    """Yield the manifests of the images of an index, in its order; for the manifest of an image, only itself.

    A ``platform`` leaves out images for other platforms. Raises UnsoundError if the registry lacks an image of the
    index, and other RegistryErrors.
    """
    for _, image in _with_platforms(registry, manifest, platform):
        yield image


def images_by_platform(registry: Registry, manifest: Manifest) -> dict[str, tuple[Manifest, ...]]:
    """Return the images of an index by their platforms, in its order; an image that is in no index has the key "".

    The key has no variant: Debian's own base for arm64 is for ``linux/arm64/v8``, a base of packages for
    ``linux/arm64``. Raises as `images_of`.
    """
    platforms: dict[str, tuple[Manifest, ...]] = {}
    for where, image in _with_platforms(registry, manifest):
        name = without_variant(where)
        platforms[name] = (*platforms.get(name, ()), image)
    return platforms


def _with_platforms(registry: Registry, manifest: Manifest, platform: str = "") -> Iterator[tuple[str, Manifest]]:
    if not manifest.is_index:
        yield "", manifest
        return
    images = [
        (blob, where)
        for blob, where in manifest.images
        if where != NO_IMAGE and (not platform or fits(where, platform))
    ]
    if len(images) > _MOST:
        raise UnsoundError(f"{registry.repository}: the index {manifest.digest} lists {len(images)} images.")
    for blob, where in images:
        image = registry.manifest(blob.digest)
        if image is None:
            raise UnsoundError(f"{registry.repository} does not hold {blob.digest}, an image of {manifest.digest}.")
        yield where, image
