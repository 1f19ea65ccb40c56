"""Properties of a script for one engine besides its contract."""

from pathlib import Path

from tests.unit.jobs.cases import LEAST, job_of
from torchbake.jobs.targets import docker
from torchbake.jobs.task import Task


def test_ctrl_c_reaches_a_node_with_a_limit_of_time() -> None:
    last = docker.render(Task(job=job_of(LEAST + "timeouts: {job: 60}\n"), image="a/b:1")).splitlines()[-1]
    assert last.startswith("timeout --foreground 60 docker run --rm ")


def test_a_folder_may_have_any_name() -> None:
    task = Task(job=job_of(LEAST + "files: {folder: x}\n"), image="a/b:1", folder=Path('/a "b",c'))
    assert """'type=bind,"source=/a ""b"",c",target=/job,readonly'""" in docker.render(task)
