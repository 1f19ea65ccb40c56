"""The images of an index for a platform."""

import json

import pytest

from torchbake.errors import UsageError
from torchbake.oci.manifest import INDEX, NO_IMAGE, Manifest
from torchbake.oci.platforms import images_for, platforms_of


def index(*platforms: str) -> Manifest:
    """An index whose images have the digests 0, 1, ….; an empty platform is none."""
    names = ("os", "architecture", "variant")
    entries = [
        {"mediaType": "x", "size": 1, "digest": f"sha256:{number:064d}"}
        | ({"platform": dict(zip(names, text.split("/"), strict=False))} if text else {})
        for number, text in enumerate(platforms)
    ]
    return Manifest(data=json.dumps({"manifests": entries}).encode(), media_type=INDEX)


def test_the_variant_counts_before_the_architecture() -> None:
    arm = ("linux/amd64", "linux/arm/v5", "linux/arm/v7", "linux/arm64/v8", NO_IMAGE)
    for platforms, platform, expected in (
        (arm, "linux/arm/v7", [2]),
        (arm, "linux/arm/v5", [1]),
        (arm, "linux/arm64", [3]),
        (arm, "linux/arm", [1, 2]),
        (("linux/arm64",), "linux/arm64/v8", [0]),
        (("linux/amd64/v3", "linux/amd64"), "linux/amd64", [1]),
        (("linux/amd64", "linux/amd64"), "linux/amd64", [0, 1]),
        (("", "linux/arm64"), "linux/amd64", [0]),
        (("", "linux/arm64"), "linux/arm64", [0, 1]),
    ):
        blobs = images_for(index(*platforms), platform, name="x")
        assert [int(blob.digest[7:]) for blob in blobs] == expected, (platforms, platform)


def test_an_index_without_the_platform_names_its_own() -> None:
    several = index("linux/arm/v7", NO_IMAGE, "linux/arm/v7", "linux/arm64")
    assert platforms_of(several) == ["linux/arm/v7", "linux/arm64"]
    for one, words in (
        (several, "--platform linux/arm/v7 or --platform linux/arm64"),
        (index(NO_IMAGE), "no platform"),
    ):
        with pytest.raises(UsageError, match="x has no image for linux/s390x") as error:
            images_for(one, "linux/s390x", name="x")
        assert words in error.value.sentence
