"""The forms of values in a matrix."""

from tests.unit.conftest import SMALL, edited, expand_text, matrix_of


def test_the_small_matrix_itself_is_whole() -> None:
    assert len(matrix_of(SMALL).rows) == 2


def test_a_value_and_a_list_of_one_mean_the_same() -> None:
    assert matrix_of(edited("torch: 2.13.0", "torch: [2.13.0]")) == matrix_of()


def test_packages_whose_names_end_in_plus_are_packages() -> None:
    assert expand_text(edited("apt: [g++]", "apt: [g++, libgl1=1.6.0-1, memtest86+]"))
