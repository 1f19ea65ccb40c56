"""A job file as this machine's engine runs it: the lines of `job show docker`, to the letter."""

import json
import subprocess
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU, torchbake
from tests.e2e.nodes import JOBS, SLOW

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
    shown = torchbake("job", "show", "docker", str(tmp_path / "job.yaml"))
    assert shown.returncode == 0, shown.stderr
    done = subprocess.run(["sh"], input=shown.stdout, capture_output=True, text=True, timeout=SLOW, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    if code == 0:  # node 0 is in the foreground: its ranks are those that are shown
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert [(each["world"], each["sum"]) for each in found] == [(4, 6)] * 2
    names = {container.name for container in engine.containers.list(all=True)}
    assert not {name for name in names if name and name.startswith(NAME)}
    assert not engine.networks.list(names=[NAME])
