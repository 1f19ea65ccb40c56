"""One container alone, whose script was written for a group: real torch, real limits."""

from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU
from tests.e2e.nodes import JOBS

pytestmark = pytest.mark.entrypoints


def ran(engine: docker.DockerClient, image: str, *, env: dict[str, str], **more: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the script."""
    container = engine.containers.create(
        image, ["run", "/job/alone.py"], environment={"TORCHBAKE_BANNER": "0", **env},
        volumes={str(JOBS): {"bind": "/job", "mode": "ro"}}, **more,
    )  # fmt: skip
    try:
        container.start()
        code = container.wait(timeout=120)["StatusCode"]
        return code, container.logs(stderr=False).decode(), container.logs(stdout=False).decode()
    finally:
        container.remove(force=True, v=True)


@pytest.mark.parametrize("network", ["bridge", "none"])
def test_one_node_is_a_group_with_or_without_a_network(
    engine: docker.DockerClient, built: dict[str, dict[str, Any]], network: str
) -> None:
    code, out, err = ran(engine, built[CPU]["ref"], env={"NNODES": "1"}, network_mode=network)
    assert (code, out[:11]) == (0, "of 1, sum 3"), err


def test_threads_follow_the_containers_limit(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> None:
    limit = 1_000_000_000
    code, out, err = ran(engine, built[CPU]["ref"], env={"NNODES": "1"}, nano_cpus=limit)
    assert (code, "threads 1," in out) == (0, True), out + err
    assert "OMP_NUM_THREADS=1" in err or engine.info()["NCPU"] == 1
    choices = {"NNODES": "1", "OMP_NUM_THREADS": "3"}
    code, out, err = ran(engine, built[CPU]["ref"], env=choices, nano_cpus=limit)
    assert (code, "OMP_NUM_THREADS 3" in out) == (0, True), out + err


def test_without_a_count_the_next_step_is_said(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> None:
    code, _, err = ran(engine, built[CPU]["ref"], env={})
    assert code == 1
    assert "RANK expected, but not set" in err
    assert "set NNODES=1" in err.splitlines()[-1]
