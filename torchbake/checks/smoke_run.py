"""A run of smoke tests: images side by side in containers, or a host's Python; all that it made is gone afterwards."""

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

from torchbake.checks.reports import Tested
from torchbake.checks.smoke_jobs import Job, Options, jobs_of, nodes_of
from torchbake.checks.smoke_judge import judge
from torchbake.checks.verdict import CheckResult, Outcome, Verdict, tally
from torchbake.core.job_variables import without_job
from torchbake.core.parallel import run_all
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.core.problem import problem_of
from torchbake.core.processes import run_to_end
from torchbake.engine.client import Engine
from torchbake.engine.containers import Box, Cluster, Node, undisturbed
from torchbake.engine.gpu import Gpu
from torchbake.engine.runner import RUN, Ended, remove
from torchbake.errors import TorchbakeError
from torchbake.matrix.spec import TOOLBOX
from torchbake.oci.labels import ID
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board

_SHM = "1g"  # a limit, not a use; the engine's own 64 MB is too little for workers and for NCCL
_SHOWN = 10
Look = Callable[[str], None]


class Place(Protocol):
    """Where payloads run: the folder of `run` and `smoke` there, and the address of a job's node 0."""

    @property
    def toolbox(self) -> str: ...

    @property
    def master(self) -> str: ...

    def run(self, job: Job, nodes: Sequence[Node], limit: int, on_look: Look) -> tuple[Ended, ...]:
        """Run every node to its end. Raises KeyboardInterrupt once the run is stopped, and EngineError."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """What one run's parts share: the label of all that it makes, and the word to stop."""

    keep: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    stopping: threading.Event = field(default_factory=threading.Event)

    def stop(self, engine: Engine | None, clean_up: contextlib.ExitStack) -> None:
        """End all parts; each removes what it made. ``clean_up``, closed when all have ended, removes what is left."""
        clean_up.enter_context(undisturbed())
        console.say("stopping; removing what was started …", style="yellow")
        self.stopping.set()
        if engine and not self.keep:
            clean_up.callback(remove, engine, RUN, self.id)


@dataclass(frozen=True, kw_only=True)
class InContainers:
    """One image's containers. ``mounted``: a folder of the host in the place of the image's own `run` and `smoke`."""

    engine: Engine
    image: str
    family: str
    gpu: Gpu
    session: Session
    mounted: Path | None = None
    toolbox = TOOLBOX
    master = "node0"

    def run(self, job: Job, nodes: Sequence[Node], limit: int, on_look: Look) -> tuple[Ended, ...]:
        box = Box(
            shm_size=_SHM,
            mounts={str(self.mounted.absolute()): TOOLBOX} if self.mounted else {},
            gpu=self.gpu.request if job.device == "cuda" else None,
            network=job.layout is not None,
        )
        if self.family == "cuda" and job.device == "cpu":
            # Where NVIDIA's runtime is the engine's default, the image's own variable would still ask for all GPUs.
            nodes = [replace(node, env={**node.env, "NVIDIA_VISIBLE_DEVICES": "void"}) for node in nodes]
        session = self.session
        cluster = Cluster(
            self.engine, self.image, box, run=session.id, stopping=session.stopping, keep=session.keep
        )  # fmt: skip
        with cluster:
            order = job.layout.order if job.layout else None
            return cluster.run(nodes, order=order or "workers-first", timeout=limit, on_look=on_look)


@dataclass(frozen=True, kw_only=True)
class OnHost:
    """Processes of a Python of this machine; the nodes of a job are this machine alone."""

    python: Path
    gpu_off: bool
    session: Session
    folder: Path = OWN_TOOLBOX
    master = "127.0.0.1"

    @property
    def toolbox(self) -> str:
        return str(self.folder)

    def run(self, job: Job, nodes: Sequence[Node], limit: int, on_look: Look) -> tuple[Ended, ...]:
        on_look("it runs")
        with tempfile.TemporaryDirectory(prefix="torchbake-") as folder:
            return tuple(self._one(node, Path(folder), limit) for node in nodes)

    def environment(self, node: Node, folder: Path, env: Mapping[str, str] = os.environ) -> dict[str, str]:
        """This machine's, without what another launcher has said, and with our Python as the only python3."""
        first = folder / "bin"
        first.mkdir(exist_ok=True)
        (first / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.python))} "$@"\n')
        (first / "python3").chmod(0o755)
        port = {"MASTER_PORT": str(_free_port())} if "NNODES" in node.env else {}
        off = {"CUDA_VISIBLE_DEVICES": ""} if self.gpu_off else {}
        return {**without_job(env), **node.env, **port, **off, "PATH": f"{first}:{env.get('PATH', os.defpath)}"}

    def _one(self, node: Node, folder: Path, limit: int) -> Ended:
        done = run_to_end(
            [str(self.python), *node.command], env=self.environment(node, folder), limit=limit,
            stopping=self.session.stopping, cwd=folder,
        )  # fmt: skip
        return Ended.of(done, self.python.name)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is tested: an image (with its digest in the engine) or a host's Python, and where its payloads run."""

    name: str
    ref: str
    row: str
    digest: str
    family: str
    expected: Mapping[str, str | None]
    gpu: Gpu
    place: Place

    def jobs(self, options: Options) -> tuple[Job, ...]:
        return jobs_of(self.family, self.gpu, options)


def smoke(subject: Subject, job: Job, options: Options, on_look: Look) -> tuple[CheckResult, ...]:
    """Run one job to its end and judge it; one with a problem starts nothing."""
    if job.problem:
        return job.not_started()
    place = subject.place
    nodes = nodes_of(job, subject.expected, options.timeout, toolbox=place.toolbox, master=place.master)
    return judge(job, place.run(job, nodes, job.limit(options.timeout), on_look))


@dataclass(frozen=True, kw_only=True)
class SmokeRun:
    """Smoke tests of several subjects. ``engine`` is None where all of them are hosts."""

    options: Options
    session: Session
    engine: Engine | None

    def run(self, subjects: Sequence[Subject], *, jobs: int) -> list[Tested]:
        """What was found, in the order of the subjects.

        Raises KeyboardInterrupt after all that was made is gone again.
        """
        with board(len(subjects), doing="smoke tests") as shown, contextlib.ExitStack() as clean_up:
            return run_all(
                subjects,
                lambda subject: self._one(subject, shown),
                jobs=jobs,
                stop=partial(self.session.stop, self.engine, clean_up),
                on_done=lambda _, tested: _finish(tested.result(), shown),
            )

    def _one(self, subject: Subject, shown: Board) -> Tested:
        started, clock = datetime.now(UTC), time.monotonic()
        shown.start(subject.name, subject.ref)
        checks: list[CheckResult] = []
        try:
            for job in subject.jobs(self.options):
                checks += smoke(subject, job, self.options, _teller(shown, subject, job))
        except TorchbakeError as error:
            return Tested(name=subject.name, ref=subject.ref, problem=problem_of(error))
        verdict = Verdict(
            image=subject.ref,
            id=subject.row,
            digest=subject.digest,
            suite="smoke",
            gpu=self.options.gpu,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 2),
            checks=tuple(checks),
        )
        return Tested(name=subject.name, ref=subject.ref, verdict=verdict)


def _teller(shown: Board, subject: Subject, job: Job) -> Look:
    name = job.check_ids[0] + (f" +{len(job.payloads) - 1}" if len(job.payloads) > 1 else "")
    return lambda text: shown.look(subject.name, f"{name}: {text}")


def _finish(tested: Tested, shown: Board) -> None:
    good = tested.outcome is Outcome.PASSED
    said = tested.problem.sentence if tested.problem else tally(tested.checks)
    seconds = f" in {tested.verdict.seconds:.1f} s" if tested.verdict else ""
    shown.end(tested.name, f"{tested.outcome}{seconds}, {said}", good=good)
    failed = [check for check in tested.checks if check.outcome is Outcome.FAILED]
    for check in failed[:_SHOWN]:
        first, *rest = check.reason.splitlines() or [check.summary]
        console.say(f"    {check.id}: {first}")
        for line in rest:
            console.say(f"    {line}", style="dim")


def own_toolbox(engine: Engine, labels: Mapping[str, str]) -> Path | None:
    """What is mounted where an image of somebody else's making has no payloads: ours, if the engine can see them."""
    return OWN_TOOLBOX if ID not in labels and engine.address.local else None


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])
