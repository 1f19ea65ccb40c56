"""Builds that are disturbed, on an engine of their own: kills, prunes, a full disk, a flipped bit, a clock set back."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, torchbake
from tests.engines.system import NotRunError, without_engine
from tests.kills.engine import KilledEngine
from tests.kills.project import Project
from tests.kills.rounds import Good, Kill, Rounds
from tests.unit.layouts import damage

_LATER = time.time() + 3650 * 86400
_ROOM = "3g"


# A build that is killed after it has set the tags, and while it checks that a container can be created.
_KILLED = """\
import sys, time
from pathlib import Path
from torchbake.engine.client import connect
from torchbake.engine.loopback import Loopback
from torchbake.engine.runner import Runner
from torchbake.store.layout import Layout

engine = connect()
assert Loopback(engine, print).pull(Layout(folder=Path(sys.argv[1])), sys.argv[2])
Runner(engine).container(sys.argv[2], ["/"])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def rounds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    process = torchbake("base", CPU, INIT)
    assert process.returncode == 0, process.stderr
    folder = tmp_path_factory.mktemp("disturbed")
    (folder / "engine").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", str(folder / "engine")], check=True)
    try:
        project = Project.make("stack", folder, ROOT / ".torchbake/bases", None)
        with KilledEngine(folder / "engine", ROOT / ".torchbake/tools") as engine:
            yield Rounds(project=project, engine=engine, evidence=folder / "evidence", usual={})
    except NotRunError as error:
        without_engine(request.config, str(error))
    finally:
        subprocess.run(["umount", "--lazy", str(folder / "engine")], check=True)


@pytest.fixture(scope="module")
def good(rounds: Rounds) -> Good:
    return rounds.undisturbed({("layers", "layout")})


@contextmanager
def in_a_loop(act: Callable[[], object]) -> Iterator[None]:
    """Call a function again and again until the block ends."""
    end = threading.Event()

    def loop() -> None:
        while not end.wait(0.05):
            act()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def test_killed_builds_and_engines_leave_no_wrong_image(rounds: Rounds, good: Good) -> None:
    targets = ("build", "engine", "both")
    kills = [
        Kill(number=number, target=target, part=part, group=number % 2 == 0, forget=("layers", "layout"))
        for number, (target, part) in enumerate(zip(targets, (0.9, 0.8, 0.6), strict=True))
    ]
    assert [rounds.round(kill, good).problems for kill in kills] == [()] * len(kills)


def test_a_build_without_work_removes_leftovers_of_a_killed_one(rounds: Rounds, good: Good) -> None:
    assert [*rounds.after_build(good, "before")] == []
    words = [sys.executable, "-c", _KILLED, str(rounds.project.stores[1]), good.digest]
    env = {**os.environ, **rounds.engine.variables, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout
        assert killed.stdout.readline() == "ready\n"
        killed.kill()
    assert rounds.engine.containers()
    assert set(rounds.engine.names()) > good.names
    assert [*rounds.after_build(good, "nothing")] == []
    assert "unchanged" in rounds.build().stdout


def test_prunes_in_a_loop_spoil_no_build(rounds: Rounds, good: Good) -> None:
    def prune() -> None:
        rounds.engine.docker("system", "prune", "--force")
        rounds.engine.docker("buildx", "prune", "--force")

    for _ in range(2):
        rounds.forget(("layers", "layout"))
        with in_a_loop(prune):
            assert [*rounds.after_build(good, "prune")] == []


def test_a_full_disk_of_the_engine_is_named_and_leaves_no_tag(rounds: Rounds, good: Good) -> None:
    rounds.forget(("layout",))
    disk, filler = rounds.engine.folder, rounds.engine.folder / "filler"
    free = os.statvfs(disk)
    subprocess.run(["fallocate", "--length", str(free.f_bavail * free.f_frsize - 8_000_000), str(filler)], check=True)
    try:
        process = rounds.build()
    finally:
        filler.unlink()
        rounds.engine.start()  # Docker may end on a full disk
    assert process.returncode
    no_engine = "error: No container engine answers" in process.stderr
    assert no_engine or "disk is full" in json.loads(process.stdout)["images"][0]["reason"]
    assert "Traceback" not in process.stderr
    assert rounds.tags() == {}
    assert [*rounds.after_build(good, "full")] == []


def test_a_flipped_bit_of_the_image_is_found_and_made_again(rounds: Rounds, good: Good) -> None:
    layout = rounds.project.stores[1]
    rounds.forget(())
    largest = max((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    damage(largest, is_seen=True)
    assert [*rounds.after_build(good, "bit")] == []


def test_times_in_the_future_change_no_build(rounds: Rounds, good: Good) -> None:
    rounds.forget(())
    for store in rounds.project.stores:
        for path in (store, *store.rglob("*")):
            os.utime(path, (_LATER, _LATER))
    assert [*rounds.after_build(good, "clock")] == []
