"""Jobs compared with a plain StatefulSet of torch.distributed.launch, and one in the form of common charts.

The tests assert a training's results and print its times. docs/internals/tested.md has the figures.
"""

import time
from collections.abc import Iterator
from statistics import median

import pytest

from tests.clusters.control.training import CHARTS, OURS, PLAIN, RANKS, WAYS, Training, lost
from tests.clusters.space import SLOW, Space
from tests.clusters.storage import volume
from tests.clusters.test_kubernetes import submit
from tests.e2e.conftest import CPU
from tests.e2e.waiting import until

ROUNDS = 3
each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def training(space: Space, built: dict[str, str]) -> Iterator[Training]:
    with volume(space, "data", owner=1001) as folder:
        value = Training(space=space, folder=folder, image=built[CPU])
        yield value
        value.remove()


@pytest.fixture(scope="module")
def starts() -> Iterator[dict[str, list[float]]]:
    matches: dict[str, list[float]] = {way: [] for way in WAYS}
    yield matches
    for way, seconds in matches.items():
        if seconds:
            text = ", ".join(f"{each:.1f}" for each in seconds)
            print(f"\n{way}: first all_reduce {median(seconds):.1f} s after kubectl apply, the median of {text}")


@each_way
@pytest.mark.parametrize("turn", range(ROUNDS))  # the ways take turns
def test_all_come_together(way: str, turn: int, training: Training, starts: dict[str, list[float]]) -> None:
    del turn
    began = submit(training.space, training.manifest(way, 1, restarts=0))
    training.reaches(1)
    starts[way].append(training.steps()[0][0] - began)


@each_way
def test_the_script_fails(way: str, training: Training) -> None:
    """Its exit code arrives by ours alone. By the others no pod ends, and torch makes it 1."""
    space = training.space
    submit(space, training.manifest(way, 1000, 7, restarts=0))
    training.reaches(5)
    if way == OURS:
        assert [each.code for each in space.ends()] == [7] * len(RANKS)
        return
    if way == PLAIN:
        until(lambda: training.containers()[-1]["restartCount"] >= 2, 240)
        assert training.containers()[-1]["lastState"]["terminated"]["exitCode"] == 1
    else:
        until(lambda: "exitcode  : 7" in space.kubectl("logs", training.pod(2)), 60)
    assert {pod["status"]["phase"] for pod in space.pods()} == {"Running"}


@pytest.mark.parametrize("way", [OURS, PLAIN])
def test_a_rank_is_killed(way: str, training: Training) -> None:
    """A job ends as if the script had failed. The StatefulSet starts again after any end."""
    space = training.space
    submit(space, training.manifest(way, 1000, restarts=0))
    training.reaches(70)
    training.kill(1)
    killed = time.time()
    if way == OURS:
        assert [each.code for each in space.ends()] == [137] * len(RANKS)
        print(f"\n{way}: all have ended {time.time() - killed:.0f} s after a rank was killed")
    else:
        _say_how_it_goes_on(way, training, "a rank was killed", killed)


@each_way
def test_a_pod_is_deleted(way: str, training: Training) -> None:
    """As when a machine is drained. Ours gives every rank the time to save, and goes on where it was."""
    submit(training.space, training.manifest(way, 1000, restarts=1))
    training.reaches(70)
    deleted = time.time()
    training.space.kubectl("delete", "pod", training.pod(1), "--wait=false")
    try:
        again = _say_how_it_goes_on(way, training, "a pod was deleted", deleted)
    except AssertionError:
        # Its other ranks sleep behind the script that failed: only where they fail their probes are they started again.
        if way != CHARTS:
            raise
        print(f"\n{way}: does not go on within {SLOW} s after a pod was deleted")
    else:
        assert way != OURS or again == 0


def _say_how_it_goes_on(way: str, training: Training, what: str, since: float) -> int:
    """How many steps were done again."""
    resumed = training.goes_on(since)
    again = lost(training.steps(), resumed)
    print(f"\n{way}: goes on {resumed[0] - since:.0f} s after {what}; {again} steps are done again")
    return again
