"""Elastic jobs in real containers: torchrun's c10d rendezvous, and what `run` adds to it."""

from collections.abc import Iterator
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from entrypoints.pytorch.launch.launch_error import Code
from tests.e2e.conftest import CPU
from tests.e2e.nodes import SLOW, Job, new_job
from tests.e2e.test_checkin import SILENT
from tests.e2e.waiting import until

pytestmark = pytest.mark.entrypoints


@pytest.fixture
def job(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> Iterator[Job]:
    settings = {
        "ELASTIC": "1:2", "NPROC_PER_NODE": 2, "MASTER_ADDR": "node0", "RENDEZVOUS_TIMEOUT": 60, "GROUP_TIMEOUT": 60,
        "PET_RDZV_CONF": "last_call_timeout=4,read_timeout=15", "PET_MAX_RESTARTS": 1,
    }  # fmt: skip
    with new_job(engine, built[CPU]["ref"], 2, settings) as job:
        yield job


def _words(job: Job, node: int) -> str:
    return str(job.containers[node].logs().decode())


def _wait_until_up(job: Job) -> None:
    until(lambda: all("is up" in _words(job, node) for node in range(len(job.containers))), SLOW)


@pytest.mark.long  # test_ladder.py has SIGTERM
def test_sigterm_ends_an_elastic_job(job: Job) -> None:
    job.start(0, "/job/steps.py", "none", "0", STEPS=500)
    _wait_until_up(job)
    job.containers[0].kill(signal="SIGTERM")
    assert job.ends() == [143], _words(job, 0)
    assert _words(job, 0).count("rank 0 of 2 is up") == 1
    assert "stopped by SIGTERM" in _words(job, 0).splitlines()[-1]


@pytest.mark.long  # torchrun starts ranks again, for `run` it is a setting
def test_a_rank_is_started_again_as_often_as_is_set(job: Job) -> None:
    job.start(0, "/job/steps.py", "exit", "1")
    assert job.ends() == [7], _words(job, 0)
    assert _words(job, 0).count("rank 1 meets exit") == 2
    assert "First: rank 1 (node 0, local rank 1): exit code 7" in _words(job, 0)


@pytest.mark.long
@pytest.mark.parametrize("elastic", [None, "1:2"], ids=["static", "elastic"])
def test_a_full_temporary_folder_ends_no_job_by_itself(job: Job, elastic: str | None) -> None:
    nodes = {} if elastic else {"NNODES": 2}
    for node in range(1 if elastic else 2):
        job.start(node, "/job/fill_tmp.py", tmpfs={"/tmp": "size=1m"}, ELASTIC=elastic, **nodes)  # type: ignore[arg-type]
    assert job.ends() == [3] * len(job.containers), _words(job, 0)
    for node in range(len(job.containers)):
        assert _words(job, node).splitlines()[-1].endswith("the folder is full"), _words(job, node)


def test_the_remaining_nodes_name_a_dead_rendezvous_host(job: Job) -> None:
    for node in range(2):
        job.start(node, "/job/steps.py", "none", "0", STEPS=2000, GROUP_TIMEOUT=20, NPROC_PER_NODE=1)
    _wait_until_up(job)
    job.containers[0].kill()
    assert job.ends()[1] == Code.NODE_LOST, _words(job, 1)
    assert "node 0, which holds the rendezvous, is gone: " in _words(job, 1)


@pytest.mark.long  # tests/unit/test_find_rendezvous.py has an ambiguous name
def test_an_ambiguous_name_of_the_rendezvous_ends_no_job(
    engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    """As where a resolver remembers a pod that is gone, and no launcher numbers the nodes: torchrun would wait a minute
    for that address and fail, on node 0 as well.
    """
    settings = {
        "ELASTIC": "2:2", "NODE_RANK": None, "MASTER_ADDR": "master", "RENDEZVOUS_TIMEOUT": 120, "GROUP_TIMEOUT": 60,
    }  # fmt: skip
    with new_job(engine, built[CPU]["ref"], 2, settings) as job:
        reason = _address(job.start(2, "-c", SILENT, program="python"))
        nodes = [job.start(node, "/job/steps.py", "none", "0", STEPS=2, hosts={"master": reason}) for node in range(2)]
        until(lambda: all("waiting for port" in node.logs().decode() for node in nodes), SLOW)
        for node in nodes:
            text = f"echo {_address(nodes[0])} master >> /etc/hosts"
            assert node.exec_run(["sh", "-c", text], user="root").exit_code == 0
        codes = [node.wait(timeout=SLOW)["StatusCode"] for node in nodes]
        assert codes == [0, 0], [node.logs().decode() for node in nodes]


def _address(container: Container) -> str:
    container.reload()
    (network,) = container.attrs["NetworkSettings"]["Networks"].values()
    return str(network["IPAddress"])
