"""The same job on real launchers, by what `job show` writes for them: the same result, and a failing rank's exit code.

docker and compose run on the engine that is here; Slurm in machines of its own, which are made of Debian's packages.
Swarm is in tests/clusters.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, images_of, torchbake
from tests.e2e.launchers.compose import compose
from tests.e2e.launchers.compose import run as run_compose
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.job import FAILS, NAME, NODES, TRAINS, check_failed, check_trained, manifest
from tests.e2e.launchers.slurm import cluster, sif
from tests.e2e.launchers.tree import NoLauncherError, tree
from tests.e2e.nodes import SLOW

pytestmark = pytest.mark.jobs

TOOLS = ROOT / ".torchbake/tools"
Launch = Callable[[tuple[str, ...]], Ended]


@pytest.fixture(scope="module")
def image() -> str:
    """The one image that is needed here."""
    done = torchbake("build", CPU, "--format", "json")
    assert done.returncode == 0, done.stderr
    return str(images_of(done)[CPU]["ref"])


@contextmanager
def by_docker(folder: Path, image: str, engine: docker.DockerClient) -> Iterator[Launch]:
    def launch(command: tuple[str, ...]) -> Ended:
        script, began = manifest("docker", folder, image, command), time.monotonic()
        done = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=SLOW, check=False)
        return Ended(code=done.returncode, said=done.stdout + done.stderr, seconds=time.monotonic() - began)

    yield launch
    check_nothing_is_left(engine)


@contextmanager
def by_compose(folder: Path, image: str, engine: docker.DockerClient) -> Iterator[Launch]:
    program = compose(TOOLS)
    yield lambda command: run_compose(program, manifest("compose", folder, image, command), f"{NAME}-0", SLOW)
    check_nothing_is_left(engine)


def check_nothing_is_left(engine: docker.DockerClient) -> None:
    names = {container.name for container in engine.containers.list(all=True)}
    assert not {name for name in names if name and NAME in name}
    assert not engine.networks.list(names=[NAME])


@contextmanager
def by_slurm(folder: Path, image: str, engine: docker.DockerClient) -> Iterator[Launch]:
    """Apptainer makes the image of the engine's; who submits the job is no root."""
    with cluster(tree(TOOLS), folder, TOOLS / "apptainer", nodes=NODES) as slurm:
        own = {"image": str(sif(slurm, engine.images.get(image)))}
        yield lambda command: slurm.run(manifest("slurm", slurm.shared, image, command, slurm=own), SLOW)
        assert slurm.busy() == ""


LAUNCHERS = {"docker": by_docker, "compose": by_compose, "slurm": by_slurm}


@pytest.fixture(scope="module", params=LAUNCHERS)
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, image: str, engine: docker.DockerClient
) -> Iterator[tuple[str, Launch]]:  # fmt: skip
    folder = tmp_path_factory.mktemp(request.param)
    try:
        with LAUNCHERS[request.param](folder, image, engine) as launch:
            yield request.param, launch
    except NoLauncherError as error:
        pytest.skip(f"{request.param} is not here, and cannot be had: {error}")


def test_a_job_trains_to_its_end(launcher: tuple[str, Launch]) -> None:
    name, launch = launcher
    check_trained(name, launch(TRAINS), shown=1 if name == "docker" else NODES)


def test_a_rank_that_fails_gives_the_job_its_exit_code(launcher: tuple[str, Launch]) -> None:
    name, launch = launcher
    check_failed(name, launch(FAILS))
