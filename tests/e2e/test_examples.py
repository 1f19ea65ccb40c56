"""The examples on this machine's engine, by the lines of their READMEs, to the end and with their exit codes."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from tests.e2e.conftest import CPU, INIT, ROOT, Completed, container_names, torchbake
from tests.e2e.deriving import build_derived, hand_in
from tests.e2e.nodes import SLOW
from tests.unit.examples import FOLDER, NAMES, lines_of, runs_here

pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("images")]

APART = {"resume"}  # has a volume, which may be somebody's
LINES = [line for name in NAMES if name not in APART for line in lines_of(name) if runs_here(line)]
PLAIN = [line for line in LINES if "job-onnx" not in line]
# Other tests here run these scripts with other arguments, or jobs of several nodes with a smaller script.
LONG = {"export", "fsdp", "loader", "mnist", "regression"}
ONNX = [line for line in LINES if "job-onnx" in line]


@pytest.fixture(scope="module")
def images(built: dict[str, dict[str, Any]]) -> None:
    """The examples name images by the matrix; these are there."""
    assert {CPU, INIT} <= built.keys()


def typed(line: str) -> Completed:
    """A line of a README in a shell, with this checkout's torchbake for nox's."""
    ours = line.replace("nox -s job --", f"{shlex.quote(sys.executable)} -m torchbake job")
    return subprocess.run(["sh", "-c", ours], cwd=ROOT, capture_output=True, text=True, timeout=SLOW, check=False)


def changed(example: str, folder: Path, /, file: str = "job.yaml", **changes: Any) -> Path:
    """A copy of an example with keys of its job changed."""
    copy = shutil.copytree(FOLDER / example, folder / example)
    job = yaml.safe_load((copy / file).read_text()) | changes
    (copy / file).write_text(yaml.safe_dump(job))
    return copy / file


def run_here(path: Path) -> Completed:
    return typed(f"nox -s job -- show docker {shlex.quote(str(path))} | sh")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=name, marks=[pytest.mark.long] * (name in LONG))
        for line in PLAIN
        for name in [line.split("/")[1]]
    ],
)
def test_an_example_learns_and_leaves_nothing(line: str, engine: docker.DockerClient) -> None:
    process = typed(line)
    assert process.returncode == 0, process.stdout + process.stderr
    name = line.split("/")[1]
    assert not {container for container in container_names(engine) if re.fullmatch(rf"{name}(-\d+)?", container)}


@pytest.mark.parametrize(
    ("name", "args"),
    [pytest.param("mnist", ["--epochs", "0"], marks=pytest.mark.long), ("regression", ["--steps", "10"])],
)
def test_what_did_not_learn_says_so_by_its_exit_code(name: str, args: list[str], tmp_path: Path) -> None:
    process = run_here(changed(name, tmp_path, args=args))
    assert process.returncode == 1, process.stdout + process.stderr
    assert "the goal is" in process.stdout


def test_mnist_reads_the_data_sets_own_files(tmp_path: Path) -> None:
    """Bars at ten places, in files of MNIST's format and names."""
    data = tmp_path / "data"
    data.mkdir()
    for part, number in (("train", 640), ("t10k", 100)):
        digits = bytes(place % 10 for place in range(number))
        pictures = b"".join(bytes(200 if x // 2 == digit else 0 for x in range(28)) * 28 for digit in digits)
        head = number.to_bytes(4, "big")
        (data / f"{part}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + head + digits)
        size = (28).to_bytes(4, "big") * 2
        (data / f"{part}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + head + size + pictures)
    volume = {"hostPath": str(data), "mountPath": "/data", "readOnly": True}
    process = run_here(changed("mnist", tmp_path, args=["--data", "/data", "--epochs", "8"], volumes=[volume]))
    assert process.returncode == 0, process.stdout + process.stderr
    assert "of 100 pictures recognised" in process.stdout


def test_a_loader_without_the_shared_memory_fails_and_says_why(tmp_path: Path, engine: docker.DockerClient) -> None:
    name = "torchbake-test-loader"
    try:
        process = run_here(changed("loader", tmp_path, name=name, resources={"memory": "2Gi", "shm": "64Mi"}))
        assert process.returncode == 1, process.stdout + process.stderr
        assert "shared memory" in process.stderr
    finally:  # also of one that hung
        remove_containers(engine, name=name)


def remove_containers(engine: docker.DockerClient, **filters: Any) -> None:
    for container in engine.containers.list(all=True, filters=filters, ignore_removed=True):
        container.remove(force=True)


@pytest.fixture
def claim(engine: docker.DockerClient) -> Iterator[str]:
    """A volume that docker makes. It is removed with the last container that uses it."""
    name = "torchbake-test-checkpoints"
    yield name
    remove_containers(engine, volume=name)
    for volume in engine.volumes.list(filters={"name": name}):
        volume.remove()


def test_a_stopped_training_resumes_to_the_same_result(claim: str, tmp_path: Path) -> None:
    name, short = "torchbake-test-resume", ["--steps", "300", "--goal", "1"]
    volume = {"claim": claim, "mountPath": "/checkpoints", "permissions": "fix"}
    path = changed("resume", tmp_path, name=name, volumes=[volume], args=["--checkpoints", "/checkpoints", *short])
    script = torchbake("job", "show", "docker", str(path)).stdout
    stopped = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert stopped.stdout
    for line in stopped.stdout:
        if line.startswith("step 50:"):  # more steps remain than the engine needs to pass the signal on
            break
    subprocess.run(["docker", "stop", name], check=True, capture_output=True, timeout=SLOW)
    output = stopped.communicate(timeout=SLOW)[0]
    assert stopped.returncode == 143, output
    (step,) = re.findall(r"stopped, and saved at step (\d+)", output)
    went_on = run_here(path)
    assert went_on.returncode == 0, went_on.stdout + went_on.stderr
    assert went_on.stdout.startswith(f"goes on at step {step}\n")
    assert "step 50:" not in went_on.stdout
    whole = changed("resume", tmp_path / "whole", name=name, volumes=[], args=["--checkpoints", "/tmp", *short])
    assert weights(run_here(whole)) == weights(went_on)


def weights(process: Completed) -> str:
    (value,) = re.findall(r"weights (\w+)", process.stdout)
    return str(value)


@pytest.fixture
def derived(tmp_path: Path, engine: docker.DockerClient) -> Iterator[str]:
    """The image of job-onnx.yaml under another name, as a user of this engine may have one under the original name."""
    hand_in(tmp_path)
    ref = "torchbake-test/pytorch-onnx:2.13.0"
    process = build_derived((FOLDER / "export/Dockerfile").read_text(), ref, tmp_path)
    assert process.returncode == 0, process.stderr
    yield ref
    engine.images.remove(ref, force=True)


@pytest.mark.long  # the derived image takes a minute; test_extending.py builds others
def test_onnx_answers_as_the_model_does(derived: str, tmp_path: Path) -> None:
    assert len(ONNX) == 1
    process = run_here(changed("export", tmp_path, "job-onnx.yaml", image=derived))
    assert process.returncode == 0, process.stdout + process.stderr
    assert re.findall(r"(?m)^(\w+): differs by", process.stdout) == ["torchscript", "export", "onnx"]


@pytest.mark.long  # test_dialects.py has the launcher
def test_openpais_command_fetches_the_script_and_learns(tmp_path: Path) -> None:
    """As one of its tasks would, with this checkout's files as the repository."""
    repository = tmp_path / "repository"
    shutil.copytree(FOLDER, repository / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "examples"]):
        settings = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", "-C", str(repository), *settings, *words], check=True)
    files = {"git": {"repository": "file:///repository", "revision": "main"}}
    path = changed("regression", tmp_path, "job-from-git.yaml", files=files)
    job = json.loads(torchbake("job", "show", "openpai-v1", str(path), "--no-pin").stdout)
    owner = ["--user", f"{os.getuid()}:0"]  # git reads no repository of somebody else's
    task = ["docker", "run", "--rm", *owner, "--volume", f"{repository}:/repository:ro", job["image"]]
    process = subprocess.run(
        [*task, "sh", "-c", job["taskRoles"][0]["command"]],
        capture_output=True, text=True, timeout=SLOW, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    assert "x^4:" in process.stdout
