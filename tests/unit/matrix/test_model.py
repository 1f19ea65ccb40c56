"""The forms of values in a matrix."""

import pytest

from tests.unit.conftest import SMALL, edited, expand_text, matrix_of
from torchbake.errors import MatrixError


def test_the_small_matrix_itself_is_whole() -> None:
    assert len(matrix_of(SMALL).rows) == 2


def test_a_value_and_a_list_of_one_mean_the_same() -> None:
    assert matrix_of(edited("torch: 2.13.0", "torch: [2.13.0]")) == matrix_of()


def test_packages_whose_names_end_in_plus_are_packages() -> None:
    assert expand_text(edited("apt: [g++]", "apt: [g++, libgl1=1.6.0-1, memtest86+]"))


@pytest.mark.parametrize("end", ["amd64", "arm64"])
@pytest.mark.parametrize("place", ["bases", "flavors", "init"])
def test_no_name_ends_as_ids_of_a_platform(place: str, end: str) -> None:
    """A base `debian12-arm64` would have the id, the records and the release tags of `debian12` for arm64."""
    entries = {"bases": "{image: debian, suite: sid, python: '3.13'}", "flavors": "{}", "init": "{version: 1.0.0}"}
    text = edited(f"{place}:\n", f"{place}:\n  one-{end}: {entries[place]}\n")
    with pytest.raises(MatrixError, match=rf"one-{end}' ends as ids"):
        expand_text(text)
