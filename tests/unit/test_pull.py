"""The table of pulls into empty engines."""

from benchmarks.cold import OURS, TUNED
from benchmarks.pull import GOALS, NAIVE, START_GOALS, Round, Start, pull_rows, start_rows


def one(pull: float, following: float | None, *starts: float) -> Round:
    cold, *warm = (Start(whole=seconds, torch=seconds / 2) for seconds in starts)
    return Round(pull=pull, following=following, cold=cold, warm=tuple(warm))


ROUNDS = {
    NAIVE: [one(40, 40, 10, 2, 2), one(20, 20, 10, 2, 2)],
    TUNED: [one(20, 10, 8, 2, 6, 2)],
    OURS: [one(12, 3, 6, 1, 1, 9)],
}


def test_pulls_are_medians_beside_both_other_ways() -> None:
    assert pull_rows(ROUNDS) == [
        (NAIVE, "30.0 s", "1.00", "1.50", "30.0 s", "1.00"),
        (TUNED, "20.0 s", "0.67", "1.00", "10.0 s", "0.50"),
        (OURS, "12.0 s", "0.40", "0.60", "3.0 s", "0.25"),
        GOALS,
    ]


def test_without_a_next_image_there_is_no_figure_of_it() -> None:
    matches = {way: [one(10, None, 1, 1)] for way in (NAIVE, TUNED, OURS)}
    assert [row[-2:] for row in pull_rows(matches)[:-1]] == [("", "")] * 3


def test_the_first_start_is_the_cold_one() -> None:
    assert start_rows(ROUNDS)[1:] == [
        (TUNED, "8.00 s", "1.00", "2.00 s", "1.00", "4.00 s", "1.00 s"),
        (OURS, "6.00 s", "0.75", "1.00 s", "0.50", "3.00 s", "0.50 s"),
        START_GOALS,
    ]
