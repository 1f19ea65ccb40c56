"""The labels and the inputs of an index: they follow from its images."""

import pytest

from torchbake.matrix.spec import AMD64, ARM64
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.manifest import DIGEST
from torchbake.release.platforms import joined_inputs, joined_labels

AMD = {ID: "2.10.0-cpu", INPUTS: "a", "org.torchbake.torch": "2.10.0+cpu", "own": "amd64"}
ARM = {ID: "2.10.0-cpu-arm64", INPUTS: "b", "org.torchbake.torch": "2.10.0"}


def test_one_image_keeps_its_labels() -> None:
    assert joined_labels({"": ARM}) == ARM


def test_an_index_has_the_labels_of_its_first_image() -> None:
    labels = joined_labels({AMD64: AMD, ARM64: ARM})
    assert labels == {**AMD, INPUTS: joined_inputs({AMD64: "a", ARM64: "b"})}
    assert joined_labels({ARM64: ARM})[ID] == ARM[ID]
    assert joined_labels({ARM64: ARM, AMD64: AMD})[ID] == AMD[ID]


@pytest.mark.parametrize("other", [{**ARM, ID: "2.11.0-cpu-arm64"}, {INPUTS: "b"}, {}])
def test_an_index_of_different_images_is_refused(other: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="different images"):
        joined_labels({AMD64: AMD, ARM64: other})


def test_an_index_of_images_of_others_is_refused() -> None:
    with pytest.raises(ValueError, match="different images"):
        joined_labels({AMD64: {INPUTS: "a"}, ARM64: {INPUTS: "b"}})


def test_the_inputs_depend_on_each_platform_and_not_on_the_order() -> None:
    inputs = joined_inputs({AMD64: "a", ARM64: "b"})
    assert inputs == joined_inputs({ARM64: "b", AMD64: "a"})
    others = ({AMD64: "b", ARM64: "a"}, {AMD64: "a", ARM64: "c"}, {AMD64: "a", "linux/arm/v7": "b"})
    assert len({inputs, *map(joined_inputs, others)}) == 4
    assert DIGEST.fullmatch(inputs)
    assert joined_inputs({AMD64: "a", ARM64: ""}) == ""
