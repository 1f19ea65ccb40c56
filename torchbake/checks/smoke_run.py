"""Run of smoke tests in containers of images, in parallel, or with a host's Python; it removes its containers."""

import contextlib
import os
import shlex
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from torchbake.checks.reports import ImageResult
from torchbake.checks.smoke_jobs import SmokeJob, SmokeOptions, jobs_of, nodes_of
from torchbake.checks.smoke_judge import judge
from torchbake.checks.verdict import CheckResult, Outcome, Verdict, tally
from torchbake.core.job_variables import without_job
from torchbake.core.parallel import run_all
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.core.problem import problem_of
from torchbake.core.processes import run_to_end
from torchbake.engine.client import Engine
from torchbake.engine.containers import Cluster, ContainerNode, ContainerSettings, shield
from torchbake.engine.gpu import GpuAccess
from torchbake.engine.runner import RUN, ContainerEnd, remove
from torchbake.errors import TorchbakeError
from torchbake.matrix.spec import TOOLBOX
from torchbake.oci.labels import ID
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board

_SHM = "1g"  # a limit, not a use; the engine's default of 64 MB is too small for loader workers and NCCL
_MOST_CHECKS = 10  # failed checks of an image that are shown
Look = Callable[[str], None]


class SmokePlace(Protocol):
    """A place for payloads, with its folder of `run` and `smoke`, and the address of a job's node 0."""

    @property
    def toolbox(self) -> str: ...

    @property
    def master(self) -> str: ...

    def run(self, job: SmokeJob, nodes: Sequence[ContainerNode], limit: int, on_look: Look) -> tuple[ContainerEnd, ...]:
        """Run every node to its end. Raise KeyboardInterrupt once the run is stopped, and EngineError."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """State that the parts of a run share: the label of its containers, and the event that stops it."""

    keep: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self, engine: Engine | None, clean_up: contextlib.ExitStack) -> None:
        """End all parts, which remove their containers. ``clean_up``, closed after their end, removes the rest."""
        clean_up.enter_context(shield())
        console.say("stopping; removing what was started …", style="yellow")
        self.stopping.set()
        if engine and not self.keep:
            clean_up.callback(remove, engine, RUN, self.id)


@dataclass(frozen=True, kw_only=True)
class InContainers:
    """Containers of one image. ``mounted`` is a folder of the host that replaces the image's `run` and `smoke`."""

    engine: Engine
    image: str
    family: str
    gpu: GpuAccess
    session: Session
    mounted: Path | None = None
    toolbox = TOOLBOX
    master = "node0"

    def run(self, job: SmokeJob, nodes: Sequence[ContainerNode], limit: int, on_look: Look) -> tuple[ContainerEnd, ...]:
        box = ContainerSettings(
            shm_size=_SHM,
            mounts={str(self.mounted.absolute()): TOOLBOX} if self.mounted else {},
            gpu=self.gpu.request if job.device == "cuda" else None,
            network=job.layout is not None,
        )
        if self.family == "cuda" and job.device == "cpu":
            # If NVIDIA's runtime is the engine's default, the image's own variable requests all GPUs.
            nodes = [replace(node, env={**node.env, "NVIDIA_VISIBLE_DEVICES": "void"}) for node in nodes]
        session, order = self.session, job.layout.order if job.layout else None
        with Cluster(
            self.engine, self.image, box, run=session.id, stopping=session.stopping, keep=session.keep
        ) as cluster:  # fmt: skip
            return cluster.run(nodes, order=order or "workers-first", timeout=limit, on_look=on_look)


@dataclass(frozen=True, kw_only=True)
class OnHost:
    """Processes of a Python on this machine, which is every node of a job."""

    python: Path
    gpu_off: bool
    session: Session
    folder: Path = OWN_TOOLBOX
    master = "127.0.0.1"

    @property
    def toolbox(self) -> str:
        return str(self.folder)

    def run(self, job: SmokeJob, nodes: Sequence[ContainerNode], limit: int, on_look: Look) -> tuple[ContainerEnd, ...]:
        on_look("it runs")
        with tempfile.TemporaryDirectory(prefix="torchbake-") as folder:
            return tuple(self._one(node, Path(folder), limit) for node in nodes)

    def environment(self, node: ContainerNode, folder: Path, env: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return this machine's variables without those of a launcher, and with `python` as the only python3."""
        first = folder / "bin"
        first.mkdir(exist_ok=True)
        (first / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.python))} "$@"\n')
        (first / "python3").chmod(0o755)
        matches = {**without_job(env), **node.env, "PATH": f"{first}:{env.get('PATH', os.defpath)}"}
        if "NNODES" in node.env:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                matches["MASTER_PORT"] = str(listener.getsockname()[1])
        return matches | ({"CUDA_VISIBLE_DEVICES": ""} if self.gpu_off else {})

    def _one(self, node: ContainerNode, folder: Path, limit: int) -> ContainerEnd:
        result = run_to_end(
            [str(self.python), *node.command], env=self.environment(node, folder), limit=limit,
            stopping=self.session.stopping, cwd=folder,
        )  # fmt: skip
        return ContainerEnd.of(result, self.python.name)


@dataclass(frozen=True, kw_only=True)
class SmokeSubject:
    """A tested image (with its digest in the engine) or host's Python, and the place of its payloads.

    ``compiler`` is True if it promises that torch.compile works.
    """

    name: str
    ref: str
    row: str
    digest: str
    family: str
    expected: Mapping[str, str | None]
    gpu: GpuAccess
    place: SmokePlace
    compiler: bool = False

    def jobs(self, options: SmokeOptions) -> tuple[SmokeJob, ...]:
        return jobs_of(self.family, self.gpu, options, compiler=self.compiler)


def smoke(subject: SmokeSubject, job: SmokeJob, options: SmokeOptions, on_look: Look) -> tuple[CheckResult, ...]:
    """Run one job to its end and judge it; a job with a problem is not started."""
    if job.problem:
        return job.not_started()
    place = subject.place
    nodes = nodes_of(job, subject.expected, options.timeout, toolbox=place.toolbox, master=place.master)
    return judge(job, place.run(job, nodes, job.limit(options.timeout), on_look))


@dataclass(frozen=True, kw_only=True)
class SmokeRun:
    """Smoke tests of several subjects. ``engine`` is None if all of them are hosts."""

    options: SmokeOptions
    session: Session
    engine: Engine | None

    def run(self, subjects: Sequence[SmokeSubject], *, jobs: int) -> list[ImageResult]:
        """Test all subjects, and return the results in their order.

        Raise KeyboardInterrupt after all containers are removed.
        """
        with board(len(subjects), doing="smoke tests") as progress, contextlib.ExitStack() as clean_up:
            return run_all(
                subjects,
                lambda subject: self._one(subject, progress),
                jobs=jobs,
                stop=partial(self.session.stop, self.engine, clean_up),
                on_end=lambda _, future: _finish(future.result(), progress),
            )

    def _one(self, subject: SmokeSubject, progress: Board) -> ImageResult:
        start, clock = datetime.now(UTC), time.monotonic()
        progress.start(subject.name, subject.ref)
        checks: list[CheckResult] = []
        try:
            for job in subject.jobs(self.options):
                checks += self._run_job(subject, job, progress)
        except TorchbakeError as error:
            return ImageResult(name=subject.name, ref=subject.ref, problem=problem_of(error))
        verdict = Verdict(
            image=subject.ref, id=subject.row, digest=subject.digest, suite="smoke", gpu=self.options.gpu,
            started=start.isoformat(timespec="seconds"), seconds=round(time.monotonic() - clock, 2),
            checks=tuple(checks),
        )  # fmt: skip
        return ImageResult(name=subject.name, ref=subject.ref, verdict=verdict)

    def _run_job(self, subject: SmokeSubject, job: SmokeJob, progress: Board) -> tuple[CheckResult, ...]:
        name = job.check_ids[0] + (f" +{len(job.payloads) - 1}" if len(job.payloads) > 1 else "")
        return smoke(subject, job, self.options, lambda text: progress.look(subject.name, f"{name}: {text}"))


def _finish(tested: ImageResult, progress: Board) -> None:
    result = tested.problem.sentence if tested.problem else tally(tested.checks)
    seconds = f" in {tested.verdict.seconds:.1f} s" if tested.verdict else ""
    progress.end(tested.name, f"{tested.outcome}{seconds}, {result}", good=tested.outcome is Outcome.PASSED)
    failed = [check for check in tested.checks if check.outcome is Outcome.FAILED]
    for check in failed[:_MOST_CHECKS]:
        first, *rest = check.reason.splitlines() or [check.summary]
        console.say(f"    {check.id}: {first}")
        for line in rest:
            console.say(f"    {line}", style="dim")


def own_toolbox(engine: Engine, labels: Mapping[str, str]) -> Path | None:
    """Return the toolkit's folder of payloads, to mount into a foreign image, or None if a mount is impossible."""
    return OWN_TOOLBOX if ID not in labels and engine.address.local else None
