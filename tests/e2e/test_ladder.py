"""The ladder of failures, on real containers: each rung ends in bounded time, non-zero, with a named cause.

The long tests are also in tests/e2e/test_run.py, as processes without torch and containers.

Prints the table of docs/explanation/ddp.md. A time runs from the fault to the end of the last container. If
the fault exists from the start, the time runs from the start of the last container.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from entrypoints.pytorch.launch.launch_error import Code
from tests.e2e.conftest import CPU
from tests.e2e.nodes import SLOW, Job, new_job
from tests.e2e.waiting import until

pytestmark = pytest.mark.entrypoints

NODES, NPROC = 3, 2
GROUP_TIMEOUT, RENDEZVOUS_TIMEOUT, STOPPED_TIMEOUT = 8, 10, 3


@pytest.fixture
def job(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> Iterator[Job]:
    settings = {
        "NNODES": NODES, "NPROC_PER_NODE": NPROC, "MASTER_ADDR": "node0",
        "GROUP_TIMEOUT": GROUP_TIMEOUT, "RENDEZVOUS_TIMEOUT": SLOW,
        "STOPPED_TIMEOUT": STOPPED_TIMEOUT,
    }  # fmt: skip
    with new_job(engine, built[CPU]["ref"], NODES, settings) as job:
        yield job


@pytest.fixture(scope="module")
def ladder() -> Iterator[Callable[..., None]]:
    """Collects a rung; the table is printed at the end."""
    rungs: list[tuple[str, ...]] = []

    def add(rung: str, seconds: float, codes: list[int], cause: str) -> None:
        rungs.append((rung, f"{seconds:.1f} s", ", ".join(map(str, codes)), cause))

    yield add
    print("\n\n| what happens | ends after | exit codes | the cause, as printed |\n| --- | --- | --- | --- |")
    for rung in rungs:
        print(f"| {' | '.join(rung)} |")


def _moment(text: str) -> float:
    """Seconds of an engine's time stamp, which has nine decimals."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*Z$", r"\1+00:00", text)).timestamp()


def _last_end(job: Job) -> float:
    for container in job.containers:
        container.reload()
    return max(_moment(container.attrs["State"]["FinishedAt"]) for container in job.containers)


def _last_start(job: Job) -> float:
    for container in job.containers:
        container.reload()
    return max(_moment(container.attrs["State"]["StartedAt"]) for container in job.containers)


def _words(container: Container) -> str:
    return str(container.logs().decode())


def _cause(container: Container) -> str:
    """The sentence of `run` that names the cause."""
    lines = [line for line in _words(container).splitlines() if line.startswith("run: ")]
    choices = [line for line in lines if "First:" in line or "perhaps that one hangs" in line or "stopped by" in line]
    return " ".join(line.removeprefix("run: ") for line in choices or lines[-1:])


def _fault_time(job: Job) -> float:
    for container in job.containers:
        match = re.search(r" meets \S+ at ([\d.]+)", _words(container))
        if match:
            return float(match[1])
    pytest.fail("no rank met its fault:\n" + _words(job.containers[0]))


LOADED = 60  # seconds more, on a machine with much else to do; a job that hangs takes 240
FAULTS = [
    # fault, exit code, what the cause must say, seconds at most on a machine that has nothing else to do
    ("raise", 1, "rank 3 (node 1, local rank 1): exit code 1", 10),
    ("exit", 7, "rank 3 (node 1, local rank 1): exit code 7", 10),
    ("kill", 137, "rank 3 (node 1, local rank 1): ended by SIGKILL", 10),
    ("segfault", 139, "rank 3 (node 1, local rank 1): ended by SIGSEGV", 10),
    ("hang", 1, "rank 3 did not end by itself", GROUP_TIMEOUT + 10),
    ("stop", 147, "rank 3 (node 1, local rank 1): its process", STOPPED_TIMEOUT + 10),
]


# These are met in test_run.py and test_ends.py too, without torch, which each rank loads for seconds.
LONG = ("exit", "segfault", "kill", "stop")


@pytest.mark.parametrize(
    "rung",
    [pytest.param(fault, id=fault[0], marks=[pytest.mark.long] if fault[0] in LONG else []) for fault in FAULTS],
)
def test_a_rank_that_fails_ends_the_whole_job(
    job: Job, ladder: Callable[..., None], rung: tuple[str, int, str, float]
) -> None:
    fault, code, cause, most = rung
    job.start_all("/job/steps.py", fault, "3")
    codes = job.ends()
    assert codes == [code] * NODES, _words(job.containers[1])
    seconds = _last_end(job) - _fault_time(job)
    ladder(f"a rank: {fault}", seconds, codes, _cause(job.containers[0]))
    for container in job.containers:
        assert cause in _words(container)
    if fault == "raise":
        for container in job.containers:
            assert _words(container).splitlines()[-1].endswith("ValueError: the loss is not a number")
    assert seconds < most + LOADED


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "code", "cause", "most"),
    [("kill", 137, "ended by SIGKILL", 10), ("stop", 147, "its process", STOPPED_TIMEOUT + 10)],
    ids=["kill", "stop"],
)
def test_one_process_a_node_ends_as_fast(  # noqa: PLR0917 - a column each
    job: Job, ladder: Callable[..., None], fault: str, code: int, cause: str, most: float
) -> None:
    job.start_all("/job/steps.py", fault, "1", NPROC_PER_NODE=1)
    codes = job.ends()
    assert codes == [code] * NODES, _words(job.containers[1])
    seconds = _last_end(job) - _fault_time(job)
    ladder(f"a rank: {fault}, one process a node", seconds, codes, _cause(job.containers[0]))
    for container in job.containers:
        assert f"rank 1 (node 1, local rank 0): {cause}" in _words(container)
    assert seconds < most + LOADED


@pytest.mark.long
def test_a_late_master_is_waited_for(job: Job, ladder: Callable[..., None]) -> None:
    for node in (2, 1):
        job.start(node, "/job/steps.py", "none", "0", STEPS=1)
    time.sleep(4)
    job.start(0, "/job/steps.py", "none", "0", STEPS=1)
    codes = job.ends()
    ladder("the master comes 4 s late", _last_end(job) - _last_start(job), codes, "none: the job is done")
    assert codes == [0] * NODES, _words(job.containers[0])


@pytest.mark.long
def test_a_name_that_never_resolves(job: Job, ladder: Callable[..., None]) -> None:
    job.start(1, "/job/steps.py", "none", "0", MASTER_ADDR="no-such-node", RENDEZVOUS_TIMEOUT=RENDEZVOUS_TIMEOUT)
    codes = job.ends()
    seconds = _last_end(job) - _last_start(job)
    ladder("the master's name never resolves", seconds, codes, _cause(job.containers[0]))
    assert codes == [Code.NO_NAME]
    assert "no-such-node did not resolve" in _words(job.containers[0])
    assert seconds < RENDEZVOUS_TIMEOUT + 10 + LOADED


@pytest.mark.long
def test_a_port_that_is_closed(job: Job, ladder: Callable[..., None]) -> None:
    where = {"MASTER_ADDR": "node1.", "MASTER_PORT": 1}
    job.start(1, "/job/steps.py", "none", "0", **where, RENDEZVOUS_TIMEOUT=RENDEZVOUS_TIMEOUT)  # type: ignore[arg-type]
    codes = job.ends()
    seconds = _last_end(job) - _last_start(job)
    ladder("the master's port is closed", seconds, codes, _cause(job.containers[0]))
    assert codes == [Code.NO_PORT], _words(job.containers[0])
    assert "port 1 did not answer" in _words(job.containers[0])
    assert seconds < RENDEZVOUS_TIMEOUT + 10 + LOADED


@pytest.mark.long
def test_a_wrong_world_size(job: Job, ladder: Callable[..., None]) -> None:
    job.start(0, "/job/steps.py", "none", "0")
    job.start(1, "/job/steps.py", "none", "0")
    job.start(2, "/job/steps.py", "none", "0", NNODES=4)
    codes = job.ends()
    seconds = _last_end(job) - _last_start(job)
    ladder("one node has another world size", seconds, codes, _cause(job.containers[0]))
    assert codes == [Code.DISAGREE] * NODES
    for container in job.containers:
        assert "NNODES is 4 on node 2 and 3 on node 0" in _words(container)
    assert seconds < 10 + LOADED


@pytest.mark.long
def test_a_node_that_never_comes(job: Job, ladder: Callable[..., None]) -> None:
    for node in (0, 1):
        job.start(node, "/job/steps.py", "none", "0", RENDEZVOUS_TIMEOUT=RENDEZVOUS_TIMEOUT)
    codes = job.ends()
    seconds = _last_end(job) - _last_start(job)
    ladder("a node never comes", seconds, codes, _cause(job.containers[0]))
    assert codes == [Code.NODES_MISSING] * 2
    assert "node 2 of 3 did not come" in _words(job.containers[1])
    assert seconds < RENDEZVOUS_TIMEOUT + 10 + LOADED


def _wait_until_up(job: Job) -> None:
    deadline = time.monotonic() + SLOW
    while not all("is up" in _words(container) for container in job.containers):
        assert time.monotonic() < deadline, _words(job.containers[0])
        time.sleep(0.2)


@pytest.mark.parametrize("victim", [pytest.param(0, id="master", marks=pytest.mark.long), pytest.param(2, id="worker")])
def test_sigterm_reaches_every_rank(job: Job, ladder: Callable[..., None], victim: int) -> None:
    job.start_all("/job/steps.py", "none", "0", STEPS=500, NPROC_PER_NODE=1 if victim else NPROC)
    _wait_until_up(job)
    began = time.time()
    job.containers[victim].kill(signal="SIGTERM")
    codes = job.ends()
    seconds = _last_end(job) - began
    ladder(f"SIGTERM to the {'worker' if victim else 'master'}", seconds, codes, _cause(job.containers[0]))
    assert codes == [143] * NODES, _words(job.containers[0])
    assert seconds < 10 + LOADED


def _paused(container: Container) -> bool:
    """Pause the container. Return False if runc gives up, as it does if a busy machine's kernel is too slow."""
    with contextlib.suppress(docker.errors.APIError):
        container.pause()
        return True
    return False


@pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.long), "pause"])
def test_a_node_that_vanishes(job: Job, ladder: Callable[..., None], how: str) -> None:
    processes = NPROC if how == "kill" else 1
    job.start_all("/job/steps.py", "none", "0", STEPS=500, GROUP_TIMEOUT=600, NPROC_PER_NODE=processes)
    _wait_until_up(job)
    began = time.time()
    missing = job.containers.pop(1)
    try:
        missing.kill() if how == "kill" else until(lambda: _paused(missing))
        codes = job.ends()
        seconds = _last_end(job) - began
        ladder(f"a container: {how}", seconds, codes, _cause(job.containers[0]))
        assert codes == [Code.NODE_LOST] * 2, _words(job.containers[0])
        assert "node 1 is gone" in _words(job.containers[1])
        assert seconds < (10 if how == "kill" else 25) + LOADED
    finally:
        missing.remove(force=True, v=True)


def test_a_small_shared_memory_is_named_before_the_job_dies(job: Job, ladder: Callable[..., None]) -> None:
    job.start(0, "/job/fill_shm.py", NNODES=1, NPROC_PER_NODE=1, MODE="standalone", shm="64m")
    codes = job.ends()
    output = _words(job.containers[0])
    ladder(
        "64 MB of shared memory", _last_end(job) - _last_start(job), codes, output.splitlines()[0].removeprefix("run: ")
    )
    assert codes[0] > 0
    assert "/dev/shm 64 MB (small" in output.splitlines()[0]
    assert "--shm-size" in output.splitlines()[0]
