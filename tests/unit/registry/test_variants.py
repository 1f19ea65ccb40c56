"""The images of an index: by platform, without attestations, and each must be there."""

import json

import pytest

from tests.unit.registries import MemoryRegistry, Store
from torchbake.oci.manifest import INDEX, MANIFEST, NO_IMAGE, Manifest, UnsoundError
from torchbake.registry.variants import images_by_platform, images_of

ARM, ARM_V8, AMD = "linux/arm64", "linux/arm64/v8", "linux/amd64"


def image_of(number: int) -> Manifest:
    return Manifest(data=json.dumps({"number": number}).encode(), media_type=MANIFEST)


def index_of(*platforms: str) -> Manifest:
    """An index of one image for each platform."""
    entries = [
        image_of(number).own.descriptor
        | {"platform": dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))}
        for number, platform in enumerate(platforms)
    ]
    return Manifest(data=json.dumps({"manifests": entries}).encode(), media_type=INDEX)


def registry(count: int) -> MemoryRegistry:
    """A registry with the first images."""
    images = [image_of(number) for number in range(count)]
    return MemoryRegistry(Store(manifests={image.digest: image for image in images}))


def numbers(*images: Manifest) -> list[int]:
    return [image.content["number"] for image in images]


def test_images_have_a_platform_without_its_variant() -> None:
    index = index_of(ARM_V8, AMD, NO_IMAGE, ARM)
    by_platform = images_by_platform(registry(4), index)
    assert {platform: numbers(*images) for platform, images in by_platform.items()} == {ARM: [0, 3], AMD: [1]}
    assert numbers(*images_of(registry(4), index)) == [0, 1, 3]
    assert numbers(*images_of(registry(4), index, ARM)) == [0, 3]
    assert images_by_platform(registry(0), image_of(0)) == {"": (image_of(0),)}


def test_an_image_that_the_registry_lacks_is_an_error() -> None:
    assert numbers(*images_of(registry(1), index_of(ARM, AMD), ARM)) == [0]
    with pytest.raises(UnsoundError, match=f"does not hold {image_of(1).digest}, an image of sha256:"):
        list(images_of(registry(1), index_of(ARM, AMD)))


def test_an_index_of_too_many_images_is_not_read() -> None:
    assert len([*images_of(registry(64), index_of(*[AMD] * 64))]) == 64
    with pytest.raises(UnsoundError, match="lists 65 images"):
        list(images_of(registry(65), index_of(*[AMD] * 65)))
