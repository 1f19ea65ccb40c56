"""Runs a prepared job where a target's jobs run: here on the engine, or by what is submitted to."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torchbake.core.files import write_text
from torchbake.engine.client import connect
from torchbake.engine.leftovers import remove_leftovers
from torchbake.jobs.expressible import Target
from torchbake.jobs.launchers.compose import Compose
from torchbake.jobs.launchers.kubernetes import Kubernetes
from torchbake.jobs.launchers.slurm import Slurm
from torchbake.jobs.local import run_here, secrets_of
from torchbake.jobs.submit import Submission
from torchbake.jobs.targets import docker
from torchbake.jobs.task import Task

LAUNCHERS: Mapping[str, type[Compose | Slurm | Kubernetes]] = {
    "compose": Compose,
    "slurm": Slurm,
    "kubernetes": Kubernetes,
    "kubernetes-1.20": Kubernetes,
}
RUNNABLE = (docker.NAME, *LAUNCHERS)  # targets


def kept_by_running(target: str) -> frozenset[str]:
    """Keys that a target cannot express, and that running the job takes care of."""
    return LAUNCHERS[target].KEEPS if target in LAUNCHERS else frozenset()


def run_job(task: Task, target: Target) -> int:
    """Run the job to its end; its exit code. Raises JobError, EngineError, and KeyboardInterrupt after a cancel."""
    if target.NAME == docker.NAME:
        engine = connect()
        remove_leftovers(engine)
        return run_here(engine, task, os.environ)
    if LAUNCHERS[target.NAME] is not Kubernetes:  # where secrets are the cluster's own
        secrets_of(task, os.environ)
    text = target.render(_stays(task))
    with tempfile.TemporaryDirectory(prefix="torchbake-") as folder:
        manifest = Path(folder) / task.job.name
        write_text(manifest, text)
        return Submission(launcher=LAUNCHERS[target.NAME](task, manifest, text), job=task.job).run()


def _stays(task: Task) -> Task:
    """The job without a time to live: `job run` removes it itself, after it has read the exit code."""
    return replace(task, job=task.job.model_copy(update={"ttl_seconds_after_finished": None}))


def shown(task: Task, target: Target) -> tuple[str, list[str]]:
    """What would be run: the manifest, and the commands that submit it; for the engine, the same in docker's words."""
    text = target.render(_stays(task))
    if target.NAME == docker.NAME:
        return text, []
    launcher = LAUNCHERS[target.NAME](task, Path("MANIFEST"), text)
    return text, [shlex.join(command) for command in (*launcher.prepare(), launcher.submit())]
