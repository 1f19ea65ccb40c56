"""Columns on a terminal: names are not broken if there is room, and empty columns are left out."""

import pytest

from torchbake.ui.columns import GAP, fill, is_of_figures, widths

IMAGE = "2.10.0-cuda12.8-cudnn9-runtime-debian12"
COLUMNS = (("image", IMAGE), ("outcome", "passed"), ("reason", "no GPU here, or none that a container gets"))


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (200, [39, 7, 42]),  # all of it
        (80, [39, 7, 30]),  # sentences are wrapped
        (64, [39, 7, 14]),
        (62, [39, 7, 12]),
        (50, [19, 7, 20]),  # names only where nothing else helps
    ],
)
def test_sentences_are_wrapped_before_names_are_broken(room: int, expected: list[int]) -> None:
    assert widths(COLUMNS, room) == expected


def test_a_name_in_the_last_column_stays_whole_if_it_fits() -> None:
    columns = [("reason", "a sentence of many short words here"), ("tag", "torchbake/pytorch:cpu")]
    assert widths(columns, 40) == [17, 21]
    assert widths([("id", IMAGE), ("tags", "2.14.1-cuda13.0-devel +1")], 58) == [39, 17]


def test_the_columns_fit() -> None:
    for room in range(1 + 1 + 1 + 2 * GAP, 120):
        assert sum(widths(COLUMNS, room)) + 2 * GAP <= room


def test_lines_and_wide_characters_count_as_a_terminal_shows() -> None:
    assert widths([("a", "one\nthree"), ("b", "漢字")], 80) == [5, 4]


def test_a_column_that_says_nothing_is_left_out() -> None:
    assert fill([("id", "a", "b"), ("remark", "", ""), ("time", "", "1 s")]) == [0, 2]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("passed", "64", "7"), True),
        (("time", "235.4 s", ""), True),
        (("size", "0.93 GB", "82.0 MB"), True),
        (("torch", "2.10.0", "2.9.1"), False),
        (("python", "3.11", "3.13"), False),
        (("layers", "7 of 8"), False),
    ],
)
def test_figures_are_told_from_versions(cells: tuple[str, ...], expected: bool) -> None:
    assert is_of_figures(cells) is expected
