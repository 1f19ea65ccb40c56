"""A job file as this machine's engine runs it: the lines of `job show docker`, to the letter, and `job run`."""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from tests.e2e.conftest import CPU, ROOT, container_names, torchbake
from tests.e2e.nodes import JOBS, SLOW
from tests.e2e.owned import OURS
from torchbake.engine.client import Engine
from torchbake.engine.owner import has_ended
from torchbake.engine.runner import owners

pytestmark = pytest.mark.jobs

NAME = "torchbake-test-job"


@pytest.mark.parametrize(
    ("command", "code"),
    [(("fit.py",), 0), (("steps.py", "exit", "3"), 7)],
    ids=["to its end", "a rank of another node fails"],
)
def test_the_script_ends_as_the_job_ends_and_leaves_nothing(
    command: tuple[str, ...], code: int, tmp_path: Path, engine: docker.DockerClient, built: dict[str, dict[str, Any]]
) -> None:
    script, *args = command
    job = {
        "name": NAME, "image": built[CPU]["ref"], "script": script, "args": args, "files": {"folder": str(JOBS)},
        "nodes": 2, "processes": 2, "resources": {"memory": "2Gi"},
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(job))  # which is YAML too
    display = torchbake("job", "show", "docker", str(tmp_path / "job.yaml"))
    assert display.returncode == 0, display.stderr
    process = subprocess.run(["sh"], input=display.stdout, capture_output=True, text=True, timeout=SLOW, check=False)
    assert process.returncode == code, process.stdout + process.stderr
    if code == 0:  # node 0 is in the foreground: only its ranks are shown
        matches = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
        assert [(each["world"], each["sum"]) for each in matches] == [(4, 6)] * 2
    assert not {name for name in container_names(engine) if name.startswith(NAME)}
    assert not engine.networks.list(names=[NAME])


def test_a_manifest_has_no_output_and_no_file_that_git_ignores(tmp_path: Path) -> None:
    """A second `job show kubernetes job.yaml > x.out` in the job's folder shows the same as the first."""
    job = {"name": NAME, "image": "a/b:c", "script": "train.py", "files": {"folder": "."}}
    files = {
        "job.yaml": json.dumps(job), "train.py": "print()", "train.err": "", ".gitignore": "runs/\n*.csv\n!keep.csv\n",
        "runs/1.txt": "x", "a.csv": "x", "keep.csv": "x", "kept.csv": "x", ".dockerignore": "notes\n",
        "notes/n.txt": "x", ":odd.csv": "x", "data/\u00e4.csv": "x", "data/\u00e4.txt": "x",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "-f", "kept.csv"], check=True)  # what git tracks it does not ignore
    command = [sys.executable, "-m", "torchbake", "job", "show", "kubernetes", "job.yaml", "--no-pin"]
    rows = []
    for name in ("x.out", "x.out", "a", "job.k8s.yaml", "b"):
        with (tmp_path / name).open("w") as file:
            subprocess.run(command, cwd=tmp_path, stdout=file, check=True)
        rows.append((tmp_path / name).read_text())
        (tmp_path / "a").unlink(missing_ok=True)
    assert rows == rows[:1] * 5
    (carried,) = [each for each in yaml.safe_load_all(rows[0]) if each["kind"] == "ConfigMap"]
    (mounted,) = [each for each in find(list(yaml.safe_load_all(rows[0])), "configMap") if "items" in each]
    assert len(carried["data"]) == len(mounted["items"])
    assert {item["path"] for item in mounted["items"]} == {"train.py", "keep.csv", "kept.csv", "data/\u00e4.txt"}


def find(node: Any, key: str) -> Iterator[Any]:
    """The values of a key, wherever they are."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from find(value, key)
    if isinstance(node, dict) and key in node:
        yield node[key]


@dataclass(frozen=True, kw_only=True)
class Running:
    """The engine and the image of the jobs."""

    engine: docker.DockerClient
    image: str


@pytest.fixture
def running(engine: docker.DockerClient, built: dict[str, dict[str, Any]]) -> Running:
    return Running(engine=engine, image=built[CPU]["ref"])


def written(tmp_path: Path, script: str, **keys: Any) -> str:
    """A job of this script; its file, in a folder that the image's user may enter."""
    tmp_path.chmod(0o755)
    (tmp_path / "job.py").write_text(script)
    job = {"name": NAME, "script": "job.py", "files": {"folder": "."}, "timeouts": {"stop": 5}, **keys}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    return str(tmp_path / "job.yaml")


def left(engine: docker.DockerClient) -> set[str]:
    """Runs that have ended, of which there still are containers, networks or volumes."""
    return {owner for owner in owners(Engine(engine)) if has_ended(owner, same_machine=True)}


def test_a_job_is_run_here_with_its_nodes_shown_by_name(tmp_path: Path, running: Running) -> None:
    before = left(running.engine)
    script = (JOBS / "meet.py").read_text()
    file = written(tmp_path, script, image=running.image, nodes=2, processes=2)
    process = torchbake("job", "run", file, timeout=SLOW)
    assert process.returncode == 0, process.stderr
    lines = [line.split(" | ", 1) for line in process.stdout.splitlines()]
    matches = {(name, json.loads(output)["rank"], json.loads(output)["sum"]) for name, output in lines}
    assert matches == {(f"{NAME}-{rank // 2}", rank, 6) for rank in range(4)}
    assert left(running.engine) <= before


@pytest.mark.parametrize(
    ("script", "keys", "ends"),
    [
        ("raise SystemExit(3)", {}, (3, "")),
        ("import time; time.sleep(600)", {"timeouts": {"job": 15, "stop": 5}}, (124, "")),
        ("import os; print(os.environ['WORD'])", {"secrets": {"WORD": {"secret": "a", "key": "b"}}}, (0, "hidden\n")),
    ],
    ids=["its exit code", "its time is over", "a secret of the shell"],
)
def test_a_run_ends_as_its_job_ends_and_leaves_nothing(
    script: str, keys: dict[str, Any], ends: tuple[int, str], tmp_path: Path, running: Running
) -> None:
    before = left(running.engine)
    file = written(tmp_path, script, image=running.image, **keys)
    process = torchbake("job", "run", file, env={"WORD": "hidden"}, timeout=SLOW)
    assert (process.returncode, process.stdout) == ends, process.stderr
    assert left(running.engine) <= before


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)], ids=lambda number: number.name
)
def test_an_interrupted_run_lets_the_script_save_its_state(
    number: signal.Signals, tmp_path: Path, running: Running
) -> None:
    before = left(running.engine)
    saving = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(143)))\n"
        "print('begun', flush=True)\n"
        "time.sleep(600)\n"
    )
    file = written(tmp_path, saving, image=running.image)
    command = [sys.executable, "-m", "torchbake", "job", "run", file]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.read() == "saved\n"
    assert process.returncode == 130
    assert left(running.engine) <= before


def test_a_volume_of_roots_is_made_writable_first(tmp_path: Path, running: Running) -> None:
    volume = running.engine.volumes.create(f"{NAME}-{uuid.uuid4().hex[:8]}", labels=OURS)
    try:
        mount = {"claim": volume.name, "mountPath": "/data"}
        write = "open('/data/x', 'w').write('x')"
        refused = written(tmp_path, write, image=running.image, volumes=[mount])
        assert torchbake("job", "run", refused, timeout=SLOW).returncode == 1
        fixed = written(tmp_path, write, image=running.image, volumes=[mount | {"permissions": "fix"}])
        process = torchbake("job", "run", fixed, timeout=SLOW)
        assert process.returncode == 0, process.stderr
    finally:
        volume.remove(force=True)


def test_an_image_of_this_engine_is_pinned_and_runs(tmp_path: Path, running: Running) -> None:
    file = written(tmp_path, "print('pinned')", image=running.image)
    display = torchbake("job", "show", "docker", file)
    assert f"{running.image}@sha256:" in display.stdout
    process = subprocess.run(["sh"], input=display.stdout, capture_output=True, text=True, timeout=SLOW, check=False)
    assert (process.returncode, process.stdout) == (0, "pinned\n"), process.stderr


@pytest.fixture
def foreign(running: Running) -> Iterator[str]:
    """An image with torch that has no label of ours, no entrypoint and no user: one layer of the image's own files."""
    name = f"torchbake-test/foreign:{uuid.uuid4().hex[:8]}"
    container = running.engine.containers.create(running.image, labels=OURS)
    change = "--change 'ENV PATH=/opt/venv/bin:/pytorch/bin:/usr/bin:/bin' --change 'WORKDIR /srv'"
    try:
        line = f"docker export {container.id} | docker import {change} - {name}"
        subprocess.run(["sh", "-c", line], check=True, stdout=subprocess.DEVNULL, timeout=SLOW)
        yield name
    finally:
        container.remove()
        if running.engine.images.list(name):
            running.engine.images.remove(name, force=True)


def test_an_image_that_is_not_ours_runs_commands_alone(tmp_path: Path, foreign: str, running: Running) -> None:
    before = left(running.engine)
    process = torchbake("job", "run", written(tmp_path, "print('never')", image=foreign), timeout=SLOW)
    assert (process.returncode, process.stdout) == (21, "")
    output = " ".join(process.stderr.split())
    assert "has no label org.torchbake.id, so it is no image of torchbake and has no `run`" in output
    assert "command: torchrun train.py" in output
    job = {"name": NAME, "image": foreign, "resources": {"memory": "2Gi"}}
    for keys, code, stdout in (
        (
            {"command": "mkdir sub && cd sub && python3 -c 'import os; print(os.getcwd(), os.getuid())'"},
            0,
            "/srv/sub 0\n",
        ),
        ({"command": ["sh", "-c", "pwd; exit 7"], "workdir": "/var/tmp"}, 7, "/var/tmp\n"),
    ):
        (tmp_path / "job.yaml").write_text(json.dumps(job | keys))
        process = torchbake("job", "run", str(tmp_path / "job.yaml"), timeout=SLOW)
        assert (process.returncode, process.stdout) == (code, stdout), process.stderr
    (tmp_path / "job.yaml").write_text(json.dumps(job | {"command": ["nvcc", "--version"]}))
    process = torchbake("job", "run", str(tmp_path / "job.yaml"), timeout=SLOW)
    assert (process.returncode, process.stdout) == (21, "")
    assert "has no program nvcc." in process.stderr
    (tmp_path / "sum.py").write_text((JOBS / "meet.py").read_text())
    together = {"command": ["torchrun", "sum.py"], "files": {"folder": "."}, "nodes": 2, "processes": 2}
    (tmp_path / "job.yaml").write_text(json.dumps(job | together))
    process = torchbake("job", "run", str(tmp_path / "job.yaml"), timeout=SLOW)
    assert process.returncode == 0, process.stderr
    matches = [json.loads(line[line.index("{") :]) for line in process.stdout.splitlines() if "{" in line]
    assert sorted((each["rank"], each["sum"]) for each in matches) == [(rank, 6) for rank in range(4)]
    assert left(running.engine) <= before
