"""The images of a tag: one image, or the variants of one image in an index."""

from collections.abc import Iterator

from torchbake.oci.manifest import NO_IMAGE, Manifest, UnsoundError
from torchbake.oci.platforms import fits
from torchbake.registry.client import Registry

_MOST = 64  # images of one index


def images_of(registry: Registry, manifest: Manifest, platform: str = "") -> Iterator[Manifest]:
    """Yield the manifests of the images of an index, in its order; for the manifest of an image, only itself.

    A ``platform`` leaves out images for other platforms. Raises UnsoundError if the registry lacks an image of the
    index, and other RegistryErrors.
    """
    if not manifest.is_index:
        yield manifest
        return
    blobs = [blob for blob, where in manifest.images if where != NO_IMAGE and (not platform or fits(where, platform))]
    if len(blobs) > _MOST:
        raise UnsoundError(f"{registry.repository}: the index {manifest.digest} lists {len(blobs)} images.")
    for blob in blobs:
        image = registry.manifest(blob.digest)
        if image is None:
            raise UnsoundError(f"{registry.repository} does not hold {blob.digest}, an image of {manifest.digest}.")
        yield image
