"""The same job on real launchers, by what `job show` writes for them: the same result, and a failing rank's exit code.

docker and compose run on the engine that is here; Slurm in machines of its own, which are made of Debian's packages.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, torchbake
from tests.e2e.launchers.compose import compose
from tests.e2e.launchers.compose import run as run_compose
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.slurm import Cluster, cluster, sif
from tests.e2e.launchers.tree import NoLauncherError, tree
from tests.e2e.nodes import JOBS, SLOW

pytestmark = pytest.mark.jobs

TOOLS = ROOT / ".torchbake/tools"
NAME = "torchbake-test-launched"
NODES = 3
TRAINS, FAILS = ("fit.py",), ("leave.py", "2", "7")
parameters: set[str] = set()


@pytest.fixture(scope="module")
def image(built: dict[str, dict[str, Any]]) -> str:
    return str(built[CPU]["ref"])


def manifest(target: str, folder: Path, image: str, command: tuple[str, ...], **more: object) -> str:
    """What `job show` writes for this launcher; the job's files are in ``folder``."""
    script, *args = command
    shutil.copytree(JOBS, folder / "files", dirs_exist_ok=True)
    job = {
        "name": NAME, "image": image, "script": script, "args": args, "files": {"folder": "files"}, "nodes": NODES,
        "processes": 1, "resources": {"cpu": 1, "memory": "2Gi"}, "timeouts": {"rendezvous": 120, "stop": 10}, **more,
    }  # fmt: skip
    (folder / "job.yaml").write_text(json.dumps(job))  # which is YAML too
    shown = torchbake("job", "show", target, str(folder / "job.yaml"))
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def check_trained(launcher: str, ended: Ended) -> None:
    """The same on all ranks, and under every launcher."""
    print(f"{launcher}: {NODES} nodes trained to the end in {ended.seconds:.1f} s")
    found = ended.found()
    assert ended.code == 0, ended.said[-3000:]
    assert [(each["rank"], each["world"], each["sum"], each["falls"]) for each in found] == [
        (rank, NODES, 3, True) for rank in range(NODES)
    ]
    parameters.update(each["parameters"] for each in found)
    assert len(parameters) == 1


def check_failed(launcher: str, ended: Ended) -> None:
    print(f"{launcher}: {NODES} nodes ended {ended.seconds:.1f} s after the start of a job whose rank 2 fails at once")
    assert ended.code == 7, ended.said[-3000:]
    assert "First: rank 2 (node 2, local rank 0): exit code 7." in ended.said


def check_nothing_is_left(engine: docker.DockerClient) -> None:
    names = {container.name for container in engine.containers.list(all=True)}
    assert not {name for name in names if name and NAME in name}
    assert not engine.networks.list(names=[NAME])


def shell(script: str) -> Ended:
    began = time.monotonic()
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=SLOW, check=False)
    return Ended(code=done.returncode, said=done.stdout + done.stderr, seconds=time.monotonic() - began)


def test_compose_ends_as_the_job_ends(tmp_path: Path, image: str, engine: docker.DockerClient) -> None:
    try:
        command = compose(TOOLS)
    except NoLauncherError as error:
        pytest.skip(f"docker compose is not installed, and cannot be had: {error}")
    first = f"{NAME}-0"
    tmp_path.chmod(0o755)
    check_trained("compose", run_compose(command, manifest("compose", tmp_path, image, TRAINS), first, SLOW))
    check_failed("compose", run_compose(command, manifest("compose", tmp_path, image, FAILS), first, SLOW))
    check_nothing_is_left(engine)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tree(TOOLS), tmp_path_factory.mktemp("slurm"), TOOLS / "apptainer", nodes=NODES) as found:
        yield found
