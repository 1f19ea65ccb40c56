"""A job whose code is a layer of its image, by real launchers: an edit, the next run, and the one layer that is pulled.

A real Kubernetes node runs the same in tests/clusters/test_job_code.py.
"""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
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


# compose and Slurm come from a tree of Debian's packages, which takes minutes to make.
TARGET = pytest.mark.parametrize("target", ["docker", pytest.param("compose", marks=pytest.mark.long)])


def tools_of(target: str, folder: Path) -> Mapping[str, str]:
    """Return the variables by which `docker` has the launcher."""
    return compose(TOOLS, folder) if target == "compose" else {}


@TARGET
def test_an_edit_runs_through_a_registry(target: str, edits: Edits, engine: docker.DockerClient) -> None:
    edits.check(target, tools_of(target, edits.folder))
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


@TARGET
def test_an_engine_alone_runs_an_edit_of_a_built_image(target: str, local: Edits, engine: docker.DockerClient) -> None:
    """By the store, and by the engine itself for an image that the store lacks."""
    ref = ref_of(CPU)
    text = f"FROM {ref}\nLABEL {DERIVED}\n"
    derived, _ = engine.images.build(fileobj=io.BytesIO(text.encode()), tag="torchbake-test/code:derived")
    try:
        env = tools_of(target, local.folder)
        for image in (ref, "torchbake-test/code:derived"):
            for edit in ("first", "second"):
                local_run(local, image, edit, target, env)
        assert names_in(engine) == set()
        assert {each["Id"] for each in engine.api.images(all=True, filters={"label": DERIVED})} == {derived.id}
    finally:
        engine.images.remove(str(derived.id), force=True)


def test_the_image_of_a_killed_run_is_removed_by_the_next(local: Edits, engine: docker.DockerClient) -> None:
    file = local.write("first", image=ref_of(CPU))
    (local.folder / "code/train.py").write_text("import time\n\nprint('begun', flush=True)\ntime.sleep(300)\n")
    command = [sys.executable, "-m", "torchbake", "job", "run", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert any("begun" in line for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert len(names_in(engine)) <= 1  # a run of another test may remove it before
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


@pytest.fixture
def slurm(edits: Edits, tmp_path: Path) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """Two machines that reach the registry, and the variables by which torchbake uses them."""
    try:
        with cluster(tree(TOOLS), tmp_path, TOOLS / "apptainer", nodes=2) as slurm, ExitStack() as stack:
            for box in slurm.boxes:
                folder = tmp_path / box.name
                folder.mkdir()
                inside = ["nsenter", "-t", str(box.pid), "-n"]
                stack.enter_context(relayed(int(edits.there.host.rpartition(":")[2]), inside, folder))
            yield slurm, variables(slurm, tmp_path / "bin")
            until(lambda: not slurm.busy(), 20)
    except NoLauncherError as error:
        pytest.skip(f"Slurm is not here, and cannot be had: {error}")


RESOURCES = {"cpu": 1, "memory": "2Gi"}


@pytest.mark.long
def test_an_edit_runs_on_slurm_with_apptainer(edits: Edits, slurm: tuple[Cluster, dict[str, str]]) -> None:
    """The image is converted once, and an edit of a folder of 5 MB sends and converts the code alone."""
    edits.fill()
    cluster, env = slurm
    edits.check("slurm", env, edits=5, resources=RESOURCES)
    images = [path.name for path in cluster.shared.glob("*.sif")]
    assert len(images) == 1
    assert len([*cluster.shared.glob("code-*.squashfs")]) == 6
    assert not [*cluster.shared.glob("*.part-*"), *cluster.shared.glob("*.lock")]


@pytest.mark.long
def test_apptainer_shows_the_files_of_a_layer(
    edits: Edits, slurm: tuple[Cluster, dict[str, str]], engine: docker.DockerClient
) -> None:
    """Names, modes, sizes, times and links as on an engine; and a file that an edit removes is gone."""
    _, env = slurm
    edits.write("x")
    code = edits.folder / "code"
    (code / "run.sh").write_text("true\n")
    (code / "run.sh").chmod(0o755)
    (code / "link").symlink_to("run.sh")
    (code / "empty").write_text("")
    outputs = list[str]()
    for removed in ("", "net/__init__.py"):
        if removed:
            (code / removed).unlink()
        for target, own in (("docker", {}), ("slurm", env)):
            job = {"name": NAME, "image": edits.image, "files": {"layer": "code"}, "resources": RESOURCES}
            command = ["find", "/job", "-mindepth", "1", "-printf", r"=%P %M %T@ %l\n"]
            (edits.folder / "job.yaml").write_text(json.dumps({**job, "command": command}))
            end = job_run(target, edits.folder / "job.yaml", own, *edits.options)
            assert end.code == 0, end.output[-3000:]
            outputs.append("\n".join(sorted(line for line in end.output.splitlines() if line.startswith("="))))
    assert outputs[0] == outputs[1] != outputs[2] == outputs[3]
    assert "=net/__init__.py" in outputs[0]
    assert "=net/__init__.py" not in outputs[2]


@pytest.mark.long
def test_jobs_on_two_nodes_at_once_convert_an_image_once(edits: Edits, slurm: tuple[Cluster, dict[str, str]]) -> None:
    """Two edits wait for one conversion; a job of two nodes has the code on both."""
    cluster, env = slurm
    folders = [replace(edits, folder=edits.folder / name) for name in ("one", "two")]
    with ThreadPoolExecutor() as pool:
        texts = ("of one", "of two")
        runs = [pool.submit(each.run, "slurm", text, env, resources={"cpu": 4, "memory": "2Gi"})
                for each, text in zip(folders, texts, strict=True)]  # fmt: skip
        manifests = [run.result()[0] for run in runs]
    assert manifests[0].digest != manifests[1].digest
    assert len([*cluster.shared.glob("*.sif")]) == 1
    outputs = [path.read_text() for path in cluster.shared.glob("*.out")]
    assert len([text for text in outputs if "Build complete" in text]) == 1
    edits.run("slurm", "of both nodes", env, nodes=2, resources=RESOURCES)


@pytest.fixture(autouse=True)
def _leave_nothing(engine: docker.DockerClient) -> Iterator[None]:
    yield
    until(lambda: not {name for name in container_names(engine) if NAME in name}, 30)
