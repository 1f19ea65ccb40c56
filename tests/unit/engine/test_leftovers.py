"""The removal of a killed run's objects, found by their owner; objects in use by other runs stay."""

import pytest

from tests.unit.engines import Daemon
from torchbake.engine import leftovers, owner
from torchbake.engine.containers import Cluster, ContainerNode
from torchbake.engine.leftovers import remove_leftovers
from torchbake.engine.runner import OWNER, RUN, Runner


def start(daemon: Daemon, *, keep: bool = False) -> Cluster:
    """A cluster that nobody has cleaned up: two containers and their network."""
    cluster = Cluster(daemon.engine, "sha256:image", keep=keep)
    cluster.start([ContainerNode(command=("sleep",)), ContainerNode(command=("sleep",))], delay=0)
    return cluster


@pytest.fixture
def daemon() -> Daemon:
    daemon = Daemon(lambda _: None)
    daemon.hold("sha256:image")
    return daemon


def labels(daemon: Daemon) -> set[str]:
    holders = [
        *(box.options["labels"] for box in daemon.boxes.values()),
        *daemon.nets.values(),
        *daemon.stores.values(),
    ]
    return {label[OWNER] for label in holders if OWNER in label}


def test_what_a_living_process_runs_is_left_alone(daemon: Daemon) -> None:
    start(daemon)
    assert remove_leftovers(daemon.engine) == 0
    assert (len(daemon.boxes), len(daemon.nets), labels(daemon)) == (2, 1, {owner.owner_label()})


def test_what_a_killed_process_left_goes_and_what_is_kept_stays(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(daemon)
    start(daemon, keep=True)
    Runner(daemon.engine).volume()
    monkeypatch.setattr(leftovers, "has_ended", lambda owner, same_machine: bool(owner))
    assert remove_leftovers(daemon.engine) == 4
    assert labels(daemon) == set()
    assert (len(daemon.boxes), len(daemon.nets), len(daemon.stores)) == (2, 1, 0)
    assert all(RUN in box.options["labels"] for box in daemon.boxes.values())
