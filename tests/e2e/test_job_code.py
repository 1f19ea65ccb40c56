"""A job whose code is a layer of its image, by real launchers: an edit, the next run, and the one layer that is pulled.

A real Kubernetes node runs the same in tests/clusters/test_job_code.py.
"""

import io
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU, ROOT, container_names, ref_of
from tests.e2e.launchers.compose import compose
from tests.e2e.launchers.edits import NAME, Edits
from tests.e2e.launchers.relay import relayed
from tests.e2e.launchers.run import command_of, job_run
from tests.e2e.launchers.slurm import Cluster, cluster
from tests.e2e.launchers.tree import UID, USER, NoLauncherError, tree
from tests.e2e.registries import Running, registry
from tests.e2e.waiting import until
from torchbake.oci.labels import CODE

pytestmark = pytest.mark.jobs

TOOLS = ROOT / ".torchbake/tools"


@pytest.fixture
def edits(tmp_path: Path) -> Iterator[Edits]:
    with registry(TOOLS, tmp_path / "registry") as there:
        edits = Edits(folder=tmp_path / "job", there=there)
        edits.folder.mkdir()
        edits.release(ref_of(CPU))
        yield edits


DERIVED = "torchbake.test=code"


def images_in(engine: docker.DockerClient) -> list[dict[str, Any]]:
    """The images with code of all runs on the engine, and the images made of this file's derived image."""
    return [each for label in (CODE, DERIVED) for each in engine.api.images(all=True, filters={"label": label})]


def names_in(engine: docker.DockerClient) -> set[str]:
    """The names of images with code that torchbake made for a run of this file."""
    names = [name for each in images_in(engine) for key in ("RepoTags", "RepoDigests") for name in each[key] or ()]
    return {name for name in names if "/team/pytorch" in name or ":building" in name}


def test_an_edit_runs_through_a_registry(edits: Edits, engine: docker.DockerClient) -> None:
    for target, env in (("docker", {}), ("compose", compose(TOOLS, edits.folder))):
        edits.check(target, env)
        assert names_in(engine) == set()
        assert not {name for name in container_names(engine) if NAME in name}


def local_run(edits: Edits, image: str, text: str, target: str = "docker", env: Mapping[str, str] | None = None) -> str:
    end = job_run(target, edits.write(text, image=image), env or {})
    assert end.code == 0, end.output[-3000:]
    assert f"the code says {text}" in end.output, end.output[-3000:]
    return end.output


@pytest.fixture
def local(tmp_path: Path) -> Edits:
    """Only the folders of a job: nothing is in a registry."""
    (tmp_path / "job").mkdir()
    return Edits(folder=tmp_path / "job", there=Running(host="nowhere.invalid", folder=tmp_path))


def test_an_engine_alone_runs_an_edit_of_a_built_image(local: Edits, engine: docker.DockerClient) -> None:
    """By the store, and by the engine itself for an image that the store lacks."""
    ref = ref_of(CPU)
    text = f"FROM {ref}\nLABEL {DERIVED}\n"
    derived, _ = engine.images.build(fileobj=io.BytesIO(text.encode()), tag="torchbake-test/code:derived")
    try:
        for image in (ref, "torchbake-test/code:derived"):
            for target, env in (("docker", {}), ("compose", compose(TOOLS, local.folder / target_of(image)))):
                for edit in ("first", "second"):
                    local_run(local, image, edit, target, env)
        assert names_in(engine) == set()
        assert {each["Id"] for each in engine.api.images(all=True, filters={"label": DERIVED})} == {derived.id}
    finally:
        engine.images.remove(str(derived.id), force=True)


def target_of(image: str) -> str:
    return image.replace("/", "-").replace(":", "-")


def test_the_image_of_a_killed_run_is_removed_by_the_next(local: Edits, engine: docker.DockerClient) -> None:
    file = local.write("first", image=ref_of(CPU))
    (local.folder / "code/train.py").write_text("import time\n\nprint('begun', flush=True)\ntime.sleep(300)\n")
    command = [sys.executable, "-m", "torchbake", "job", "run", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert any("begun" in line for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert len(names_in(engine)) == 1
    local_run(local, ref_of(CPU), "second")
    assert names_in(engine) == set()


def variables(slurm: Cluster, folder: Path) -> dict[str, str]:
    """The variables by which torchbake submits to Slurm, and Apptainer pulls from a registry without TLS."""
    work = slurm.shared / "work"
    work.mkdir()
    os.chown(work, UID, UID)
    own = {"USER": USER, "APPTAINER_NOHTTPS": "1", "APPTAINER_CACHEDIR": str(work), "APPTAINER_TMPDIR": str(work)}
    env = slurm.tools(folder)
    there = ["sh", "-c", 'cd "$0" && exec "$@"', str(slurm.shared), "sbatch"]
    command = slurm.boxes[0].command(*there, uid=UID, home=f"/home/{USER}", env=own)
    command_of("sbatch", shlex.join(command), folder, first=f"chown -R {UID} {shlex.quote(env['TMPDIR'])}\n")
    return env


def test_an_edit_runs_on_slurm_with_apptainer(edits: Edits, tmp_path: Path) -> None:
    """Apptainer makes another file of the second image. It asks again for some layers, and keeps the large ones."""
    try:
        with cluster(tree(TOOLS), tmp_path, TOOLS / "apptainer", nodes=1) as slurm:
            inside = ["nsenter", "-t", str(slurm.boxes[0].pid), "-n"]
            with relayed(int(edits.there.host.rpartition(":")[2]), inside, tmp_path):
                env, resources = variables(slurm, tmp_path / "bin"), {"cpu": 1, "memory": "2Gi"}
                edits.check("slurm", env, again=2**25, resources=resources)
                assert not slurm.busy()
    except NoLauncherError as error:
        pytest.skip(f"Slurm is not here, and cannot be had: {error}")


@pytest.fixture(autouse=True)
def _leave_nothing(engine: docker.DockerClient) -> Iterator[None]:
    yield
    until(lambda: not {name for name in container_names(engine) if NAME in name}, 30)
