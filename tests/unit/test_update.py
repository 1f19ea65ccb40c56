"""The table of an image whose base got an update."""

import yaml

from benchmarks.cold import OURS, TUNED
from benchmarks.pull import Round, Start
from benchmarks.update import GOALS, REPOSITORY, Builds, rows, with_base

NEVER = Start(whole=0, torch=0)


def one(pull: float, following: float) -> Round:
    return Round(pull=pull, following=following, cold=NEVER, warm=())


def test_rows_compare_builds_and_pulls_to_first_and_tuned() -> None:
    builds = {TUNED: Builds(cold=200, updated=100), OURS: Builds(cold=100, updated=25)}
    matches = {TUNED: [one(40, 30), one(60, 50)], OURS: [one(20, 2), one(30, 4), one(40, 6)]}
    assert rows(builds, matches) == [
        (TUNED, "200.0 s", "100.0 s", "0.50", "1.00", "50.0 s", "40.0 s", "0.80", "1.00"),
        (OURS, "100.0 s", "25.0 s", "0.25", "0.25", "30.0 s", "4.0 s", "0.13", "0.10"),
        GOALS,
    ]


def test_one_base_is_another_image_and_all_else_is_the_same() -> None:
    matrix = {"repository": "own", "bases": {"a": {"image": "a:1", "suite": "s"}, "b": {"image": "b:1"}}, "rows": [1]}
    assert yaml.safe_load(with_base(yaml.safe_dump(matrix), "a", "a:2")) == {
        "repository": REPOSITORY,
        "bases": {"a": {"image": "a:2", "suite": "s"}, "b": {"image": "b:1"}},
        "rows": [1],
    }
