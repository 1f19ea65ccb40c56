"""Runs of a prepared job: here on the engine, or by a submission to a launcher."""

import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torchbake.core.files import write_text
from torchbake.engine.client import connect
from torchbake.engine.leftovers import remove_leftovers
from torchbake.jobs.engine_code import code_in_engine, removed_afterwards
from torchbake.jobs.expressible import Target
from torchbake.jobs.launchers import Launcher
from torchbake.jobs.launchers.compose import ComposeLauncher
from torchbake.jobs.launchers.kubernetes import KubernetesLauncher
from torchbake.jobs.launchers.slurm import SlurmLauncher
from torchbake.jobs.local import run_here, secrets_of
from torchbake.jobs.pin import ON_THE_ENGINE
from torchbake.jobs.submit import Submission
from torchbake.jobs.targets import docker
from torchbake.jobs.task import Task
from torchbake.store.layout import Layout

LAUNCHERS: Mapping[str, type[Launcher]] = {
    "compose": ComposeLauncher,
    "slurm": SlurmLauncher,
    "kubernetes": KubernetesLauncher,
    "kubernetes-1.20": KubernetesLauncher,
}
RUNNABLE = (docker.NAME, *LAUNCHERS)  # names of targets


def kept_by_running(target: str) -> frozenset[str]:
    """Return the keys that a target cannot express, but `job run` implements itself."""
    return LAUNCHERS[target].KEEPS if target in LAUNCHERS else frozenset()


def run_job(task: Task, target: Target, images: Layout) -> int:
    """Run the job to its end and return its exit code.

    ``images`` are the built images of the project. If the task's image still lacks the code of the job, this machine's
    engine gets an image with it until the end. Raises JobError, EngineError, UsageError, and KeyboardInterrupt after a
    cancellation.
    """
    if not task.job.files.layer or target.NAME not in ON_THE_ENGINE:
        return _run(task, target)
    engine = connect()
    remove_leftovers(engine)
    if task.code is None:
        with removed_afterwards(engine, task.image):
            return _run(task, target)
    with code_in_engine(engine, task, images) as complete:
        return _run(complete, target)


def _run(task: Task, target: Target) -> int:
    if target.NAME == docker.NAME:
        engine = connect()
        remove_leftovers(engine)
        return run_here(engine, task, os.environ)
    if LAUNCHERS[target.NAME] is not KubernetesLauncher:  # which has the secrets in the cluster
        secrets_of(task, os.environ)
    text = target.render(_without_ttl(task))
    with tempfile.TemporaryDirectory(prefix="torchbake-") as folder:
        manifest = Path(folder) / task.job.name
        write_text(manifest, text)
        return Submission(launcher=LAUNCHERS[target.NAME](task, manifest, text), job=task.job).run()


def _without_ttl(task: Task) -> Task:
    """Remove the job's time to live, since `job run` removes the job after it has read the exit code."""
    return replace(task, job=task.job.model_copy(update={"ttl_seconds_after_finished": None}))


def preview(task: Task, target: Target) -> tuple[str, list[str]]:
    """Return the manifest, and the commands that submit it. For the engine, the manifest is a script of docker's."""
    text = target.render(_without_ttl(task))
    if target.NAME == docker.NAME:
        return text, []
    launcher = LAUNCHERS[target.NAME](task, Path("MANIFEST"), text)
    return text, [shlex.join(command) for command in (*launcher.prepare(), launcher.submit())]
