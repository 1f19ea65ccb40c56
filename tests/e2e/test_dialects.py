"""Three nodes with two processes each, under each launcher's own environment: the same ranks, the same result.

The ranks meet as torch would, by the same variables. Every night they also train with torch.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import docker
import pytest

from entrypoints.pytorch.launch.contract import contract_of
from tests.e2e.conftest import CPU
from tests.e2e.nodes import Job, new_job

pytestmark = pytest.mark.entrypoints

FIXTURES = sorted((Path(__file__).parents[1] / "unit/dialects").glob("*.json"))
# Variables of the launcher's host or of its image, which a container of ours must not get.
NOT_OURS = {"PATH", "HOME", "HOSTNAME", "PWD", "LD_LIBRARY_PATH", "PYTHONPATH"}
EXPECTED = [(rank, rank % 2) for rank in range(6)]
# Each way to start: ranks at an address or at a name, by `run`, by a process manager or by torchrun. The unit tests
# read all fixtures.
FIRST = {"openpai", "indexed-job", "slurm", "mpi-openmpi", "torchrun-worker"}
TRAINING, MEETING = "/job/fit.py", "/job/meet.py"
parameters: set[str] = set()


def found_by(job: Job) -> list[dict[str, Any]]:
    """Return the JSON line of each rank, sorted by rank."""
    codes = job.ends()
    words = [container.logs().decode() for container in job.containers]
    assert codes == [0] * len(job.containers), "\n".join(words)[-3000:]
    lines = [line for text in words for line in text.splitlines() if line.startswith("{")]
    return sorted((json.loads(line) for line in lines), key=lambda matches: int(matches["rank"]))


def check(matches: list[dict[str, Any]]) -> None:
    assert [(each["rank"], each["local_rank"]) for each in matches] == EXPECTED
    assert {each["world"] for each in matches} == {6}
    assert {each["sum"] for each in matches} == {15}


def check_training(matches: list[dict[str, Any]]) -> None:
    assert all(each["falls"] for each in matches)
    parameters.update(each["parameters"] for each in matches)
    assert len(parameters) == 1  # the same on all ranks, and under every launcher


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=() if path.stem in FIRST else pytest.mark.long) for path in FIXTURES],
)
def test_each_launcher_starts_the_same_job(
    path: Path, engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    check(ranks_of(path, MEETING, engine, built[CPU]["ref"]))


@pytest.mark.long
@pytest.mark.parametrize("name", ["openpai", "mpi-openmpi", "torchrun-worker"])
def test_ranks_train_under_each_kind_of_launcher(
    name: str, engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    (path,) = (path for path in FIXTURES if path.stem == name)
    matches = ranks_of(path, TRAINING, engine, built[CPU]["ref"])
    check(matches)
    check_training(matches)


def ranks_of(path: Path, script: str, engine: docker.DockerClient, image: str) -> list[dict[str, Any]]:
    """Run a job under this launcher's environment, and return the JSON line of each rank."""
    fixture = json.loads(path.read_text())
    if path.stem == "torchrun-worker":
        return started_by_torchrun(script, engine, image)
    nodes = [fixture["common"] | node for node in fixture["nodes"]]
    contract = contract_of(nodes[1], gpus=fixture["gpus"])
    if contract.own:
        return started_by_mpi(script, engine, image, nodes, contract.master_addr)
    address = contract.master_addr
    is_ip = address.replace(".", "").isdigit()
    subnet = f"{address.rpartition('.')[0]}.0/24" if is_ip else None
    # `auto` counts device files, which need no GPU behind them.
    devices = tuple(f"/dev/null:/dev/nvidia{index}" for index in range(fixture["gpus"]))
    settings = {"RENDEZVOUS_TIMEOUT": 30, "NODE_RANK": None}
    with new_job(engine, image, 3, settings, subnet=subnet) as job:
        for index in (2, 0, 1):
            variables = {name: value for name, value in nodes[index].items() if name not in NOT_OURS}
            master = index == 0
            job.start(
                index, script, names=(address,) if master and not is_ip else (),
                ip=address if master and is_ip else None, devices=devices, **variables,
            )  # fmt: skip
        return found_by(job)


def started_by_torchrun(script: str, engine: docker.DockerClient, image: str) -> list[dict[str, Any]]:
    """`run` inside each rank of a real torchrun: it is a rank already, and starts the script as it is."""
    with new_job(engine, image, 3, {"NODE_RANK": None}) as job:
        for index in (2, 0, 1):
            words = ["--nnodes=3", f"--node-rank={index}", "--nproc-per-node=2", "--master-addr=node0", "--no-python"]
            job.start(index, *words, "run", script, program="torchrun")
        return found_by(job)


def started_by_mpi(
    script: str, engine: docker.DockerClient, image: str, ranks: list[dict[str, str]], master: str
) -> list[dict[str, Any]]:
    """Two processes in each container, with the variables that an MPI launcher gives each."""
    with new_job(engine, image, 3, {"NODE_RANK": None}) as job:
        for index in (2, 0, 1):
            here = [
                shlex.join(["env", *(f"{name}={value}" for name, value in rank.items() if name not in NOT_OURS)])
                for rank in ranks[2 * index : 2 * index + 2]
            ]
            both = " & ".join(f"{env} run {script}" for env in here)
            job.start(index, "-c", f"{both} & wait", program="sh", names=(master,) if index == 0 else ())
        return found_by(job)
