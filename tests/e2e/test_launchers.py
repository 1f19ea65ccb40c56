"""The same job on real launchers: the same result, and a failing rank's exit code.

Each launcher runs the output of `job show`, and then the same job through `job run`, which also ends cleanly on Ctrl-C.

docker and compose run on this host's engine; Slurm runs in machines that the test makes from Debian packages. Swarm is
in tests/clusters. All of this runs every night; by docker, the tests in tests/e2e/test_job.py always run.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, container_names, ref_of
from tests.e2e.launchers.bundle import bundle
from tests.e2e.launchers.compose import compose
from tests.e2e.launchers.compose import run as run_compose
from tests.e2e.launchers.ended import Ended
from tests.e2e.launchers.job import (
    FAILS,
    MEETS,
    NAME,
    NODES,
    SAVES,
    TORCHRUN,
    TRAINS,
    check_cancelled,
    check_failed,
    check_met,
    check_trained,
    job_file,
    manifest,
)
from tests.e2e.launchers.run import job_run
from tests.e2e.launchers.slurm import cluster, sif
from tests.e2e.launchers.tree import NoLauncherError, tree
from tests.e2e.nodes import SLOW

pytestmark = [pytest.mark.jobs, pytest.mark.long]  # to make the machines takes minutes

TOOLS = ROOT / ".torchbake/tools"
Launch = Callable[[tuple[str, ...]], Ended]


@pytest.fixture(scope="module")
def image() -> str:
    """The CPU image's reference."""
    return ref_of(CPU)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A launcher with its tools. ``launch`` takes what `job show` writes; ``job_file`` writes what `job run` takes."""

    name: str
    launch: Launch
    job_file: Callable[[tuple[str, ...]], Path]
    left: Callable[[], object]
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, command: tuple[str, ...], *, interrupt_after: int | None = None) -> Ended:
        """By `job run`, which leaves nothing."""
        end = job_run(self.name, self.job_file(command), self.env, interrupt_after=interrupt_after)
        assert not self.left()
        return end


@contextmanager
def by_docker(folder: Path, image: str, engine: docker.DockerClient) -> Iterator[Place]:
    def launch(command: tuple[str, ...]) -> Ended:
        script, began = manifest("docker", folder, image, command), time.monotonic()
        process = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=SLOW, check=False)
        return Ended(code=process.returncode, output=process.stdout + process.stderr, seconds=time.monotonic() - began)

    write, left = partial(job_file, folder, image), partial(left_on, engine)
    yield Place(name="docker", launch=launch, job_file=write, left=left)


@contextmanager
def by_compose(folder: Path, image: str, engine: docker.DockerClient) -> Iterator[Place]:
    env = compose(TOOLS, folder)

    def launch(command: tuple[str, ...]) -> Ended:
        return run_compose(env, manifest("compose", folder, image, command), f"{NAME}-0", SLOW)

    write, left = partial(job_file, folder, image), partial(left_on, engine)
    yield Place(name="compose", launch=launch, job_file=write, left=left, env=env)


def left_on(engine: docker.DockerClient) -> set[str]:
    """The jobs' containers and networks on an engine."""
    names = container_names(engine) | {str(network.name) for network in engine.networks.list()}
    return {name for name in names if NAME in name}


@contextmanager
def by_slurm(folder: Path, image: str, engine: docker.DockerClient) -> Iterator[Place]:
    """Apptainer makes the image of the engine's; who submits the job is no root."""
    with cluster(tree(TOOLS), folder, TOOLS / "apptainer", nodes=NODES) as slurm:
        own = {"image": str(sif(slurm, engine.images.get(image)))}

        def launch(command: tuple[str, ...]) -> Ended:
            return slurm.run(manifest("slurm", slurm.shared, image, command, slurm=own), SLOW)

        write, env = partial(job_file, slurm.shared, image, slurm=own), slurm.tools(folder / "bin")
        yield Place(name="slurm", launch=launch, job_file=write, left=slurm.busy, env=env)


LAUNCHERS = {"docker": by_docker, "compose": by_compose, "slurm": by_slurm}


EACH = pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, image: str, engine: docker.DockerClient
) -> Iterator[Place]:  # fmt: skip
    folder = tmp_path_factory.mktemp(request.param)
    try:
        with LAUNCHERS[request.param](folder, image, engine) as place:
            yield place
            assert not place.left()
    except NoLauncherError as error:
        pytest.skip(f"{request.param} is not here, and cannot be had: {error}")


@pytest.fixture(scope="module")
def bundled(image: str, engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """By `srun --container`; a bundle's files and mounts are its own, so the script is named as it is found there."""
    folder = tmp_path_factory.mktemp("bundle")
    try:
        with cluster(tree(TOOLS), folder, TOOLS / "apptainer", nodes=NODES) as slurm:
            own = {"runtime": "oci", "image": str(bundle(slurm, image, slurm.shared / "files"))}

            def launch(command: tuple[str, ...]) -> Ended:
                script, *args = command
                text = manifest("slurm", slurm.shared, image, (f"/job/{script}", *args), slurm=own, files={})
                return slurm.run(text, SLOW)

            yield launch
            assert not slurm.busy()
    except NoLauncherError as error:
        pytest.skip(f"Slurm is not here, and cannot be had: {error}")


@EACH
def test_a_job_trains_to_its_end(launcher: Place) -> None:
    check_trained(launcher.name, launcher.launch(TRAINS), count=1 if launcher.name == "docker" else NODES)


@EACH
def test_torchrun_is_a_command_that_finds_all_nodes(launcher: Place) -> None:
    """Of an image of which nothing is known, as nobody was asked."""
    check_met(launcher.launch(TORCHRUN), count=1 if launcher.name == "docker" else NODES)


@EACH
def test_a_rank_that_fails_gives_the_job_its_exit_code(launcher: Place) -> None:
    check_failed(launcher.name, launcher.launch(FAILS))


@EACH
def test_job_run_shows_all_nodes(launcher: Place) -> None:
    check_met(launcher.run(MEETS))


@EACH
def test_job_run_ends_as_the_rank_that_fails(launcher: Place) -> None:
    check_failed(f"job run, {launcher.name}", launcher.run(FAILS))


@EACH
def test_job_run_cancels_the_job_by_ctrl_c(launcher: Place) -> None:
    check_cancelled(launcher.run(SAVES, interrupt_after=NODES))


@pytest.mark.parametrize(
    ("command", "check"), [(TRAINS, check_trained), (FAILS, check_failed)], ids=["trains", "fails"]
)
def test_slurm_runs_a_bundle(bundled: Launch, command: tuple[str, ...], check: Callable[[str, Ended], None]) -> None:
    check("slurm, an OCI bundle", bundled(command))


def test_slurm_starts_a_job_again_that_run_ends_for_a_lost_node(
    image: str, engine: docker.DockerClient, tmp_path: Path
) -> None:
    """Slurm itself waits two minutes before it does."""
    try:
        with cluster(tree(TOOLS), tmp_path, TOOLS / "apptainer", nodes=1) as slurm:
            own = {"image": str(sif(slurm, engine.images.get(image)))}
            text = manifest("slurm", slurm.shared, image, ("again.py",), slurm=own, nodes=1, restarts=1)
            end = slurm.run(text, 600)
    except NoLauncherError as error:
        pytest.skip(f"Slurm is not here, and cannot be had: {error}")
    assert end.code == 0, end.output
    assert "a node was lost: the job goes into the queue again" in end.output
    assert [line for line in end.output.splitlines() if "started again" in line][-1].endswith("started again 1 times")
