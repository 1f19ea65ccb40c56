"""Images that share their tags: grouped, named, and one of each tag."""

from dataclasses import replace

from tests.unit.conftest import image, init_image
from torchbake.matrix.platforms import (
    PlatformGroups,
    bases_of,
    id_of_tag,
    one_of_each_tag,
    platform_tag,
    shared_id,
    words_of_base,
)
from torchbake.matrix.select import select
from torchbake.matrix.spec import AMD64, ARM64

AMD, ARM = image(), image(platform=ARM64)
DEVEL = image(flavor="devel", platform=ARM64)
INIT = init_image()


def test_images_of_one_tag_are_ordered_by_platform() -> None:
    groups = PlatformGroups(specs=(DEVEL, ARM, AMD, INIT))
    assert groups.of(ARM) == groups.of(AMD) == (AMD, ARM)
    assert groups.of(DEVEL) == (DEVEL,)
    # The same tag in another repository is another image.
    assert PlatformGroups(specs=(AMD, replace(ARM, repository="acme/other"))).of(AMD) == (AMD,)


def test_one_image_of_each_tag_stays() -> None:
    assert one_of_each_tag((AMD, ARM, DEVEL)) == (AMD, DEVEL)
    assert one_of_each_tag((ARM, AMD)) == (ARM,)


def test_a_base_is_selected_by_its_words() -> None:
    specs = (AMD, image(base=replace(AMD.base, platform=ARM64), platform=ARM64))
    assert bases_of((*specs, DEVEL)) == [spec.base for spec in specs]
    for spec in specs:
        assert select(specs, words_of_base(spec.base).split()).specs == (spec,)


def test_names_of_releases_and_of_all_platforms() -> None:
    for spec, end in ((AMD, "amd64"), (ARM, "arm64")):
        assert platform_tag(spec) == f"{AMD.own_tag}-{end}"
        assert shared_id(spec) == AMD.id
        assert id_of_tag(spec.id) == AMD.id
    arm = replace(INIT, platform=ARM64)
    assert (platform_tag(INIT), platform_tag(arm)) == ("1.0.0-amd64", "1.0.0-arm64")
    assert shared_id(arm) == INIT.id == "volume-permissions"
    assert AMD.platform == AMD64
    assert [PlatformGroups(specs=(AMD, ARM, DEVEL)).release_name(spec) for spec in (AMD, ARM, DEVEL)] == [
        f"{AMD.own_tag}-amd64",
        f"{AMD.own_tag}-arm64",
        DEVEL.own_tag,  # of one platform
    ]
