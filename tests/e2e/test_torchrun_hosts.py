"""The script of `job show torchrun`, on hosts that only share a folder and reach each other by name.

The hosts are containers of the CPU image, for its Python and torch. If a test uses more of the image, it says so.
"""

from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from tests.e2e.conftest import CPU, ref_of
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.job import FAILS, NODES, TRAINS, check_trained, manifest
from tests.e2e.nodes import Job, new_job

pytestmark = pytest.mark.jobs

BARE: dict[str, object] = {"resources": {}, "timeouts": {"rendezvous": 120}}  # a host has what it has


@pytest.fixture(scope="module")
def image() -> str:
    return ref_of(CPU)


def started(job: Job, folder: Path, command: tuple[str, ...], torchrun: str = "torchrun") -> list[Container]:
    """The script on each host, as a user types it there: sh job.sh NUMBER HOST0."""
    folder.chmod(0o755)
    script = folder / "job.sh"
    script.write_text(manifest("torchrun", folder, job.image, command, **BARE))
    words = (str(script), "{}", "node0")
    return [
        job.start(
            node, *(word.format(node) for word in words), program="sh", shared=folder, NODE_RANK=None, TORCHRUN=torchrun
        )
        for node in range(NODES)
    ]


@pytest.mark.long  # test_job.py trains
def test_a_job_trains_to_its_end_and_each_host_ends_with_0(
    engine: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    with new_job(engine, image, NODES, {}) as job:
        containers = started(job, tmp_path, TRAINS)
        codes = job.ends()
        output = "".join(container.logs().decode() for container in containers)
    assert codes == [0] * NODES, output[-3000:]
    check_trained("torchrun", Ended(code=0, output=output, seconds=0))


def test_a_rank_that_fails_ends_its_host_with_torchruns_own_code(
    engine: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    """torchrun exits with 1 for every failure, and prints the rank's exit code. Nothing watches the other hosts."""
    with new_job(engine, image, NODES, {}) as job:
        *others, last = started(job, tmp_path, FAILS)
        assert last.wait(timeout=240)["StatusCode"] == 1
        output = last.logs().decode()
        for container in others:
            container.reload()
        assert [container.status for container in others] == ["running"] * 2
    assert "exitcode  : 7" in output


def test_run_instead_of_torchrun_ends_all_hosts_with_one_code(
    engine: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    with new_job(engine, image, NODES, {}) as job:
        containers = started(job, tmp_path, FAILS, "run")
        assert job.ends() == [7] * NODES
        assert "First: rank 2 (node 2, local rank 0): exit code 7." in containers[0].logs().decode()
