"""Pulls an image by its digest, as anybody would, and looks into it in a container; it leaves the engine as it was."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from docker.errors import ImageNotFound

from torchbake.checks.pytest_run import Suite, Target
from torchbake.checks.reports import file_name
from torchbake.checks.smoke_jobs import Job, nodes_of
from torchbake.checks.smoke_judge import judge
from torchbake.checks.smoke_run import InContainers, Session, own_toolbox
from torchbake.checks.verdict import CheckResult, Outcome, tally
from torchbake.core.problem import Problem, problem_of
from torchbake.core.sizes import human
from torchbake.engine.client import Engine, answering
from torchbake.engine.containers import Box, Cluster, Node
from torchbake.engine.gpu import Gpu
from torchbake.engine.image_check import check_pulled
from torchbake.engine.runner import Ended
from torchbake.errors import EngineError, TorchbakeError
from torchbake.oci.reference import Repository
from torchbake.registry.credentials import login_for_engine
from torchbake.validate.expect import Versions
from torchbake.validate.judge import Inside

PULL, VERSIONS, SUITE = "registry.pull", "registry.versions", "registry.suite"
_VERSIONS_JOB = Job(payloads=("versions",), device="cpu")
_NO_GPU = Gpu(how="none", reason="versions need none")

Look = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What must be inside of one digest: versions, or an init image's release. ``problem``: why nobody looks.

    ``row`` is its id in the matrix; empty: none. ``waivers`` are image checks that it may fail, with the reasons.
    """

    repository: Repository
    digest: str
    labels: Mapping[str, str]
    expected: Versions
    release: str = ""
    problem: Problem | None = None
    row: str = ""
    waivers: Mapping[str, str] = field(default_factory=dict)


class Looker(Protocol):
    """Looks into images."""

    def look_into(self, question: Question, look: Look) -> Inside:
        """The checks `registry.pull` and `registry.versions`, and `registry.suite` where it is asked for.

        Raises KeyboardInterrupt once the run is stopped.
        """

    def stop(self) -> None:
        """End what runs in processes of its own."""


@dataclass(frozen=True, kw_only=True)
class Idle:
    """Looks into nothing, for a reason."""

    reason: str

    def look_into(self, question: Question, look: Look) -> Inside:
        return not_run(question.problem.reason if question.problem else self.reason)

    def stop(self) -> None:
        """Nothing runs."""


@dataclass(frozen=True, kw_only=True)
class InEngine:
    """Looks into images in containers of an engine; ``timeout`` is seconds for one of them. May raise EngineError.

    ``suite`` runs all image checks, whose logs go to ``logs``; None: they are not asked for.
    """

    engine: Engine
    session: Session
    timeout: int = 300
    suite: Suite | None = None
    logs: Path = Path()
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def look_into(self, question: Question, look: Look) -> Inside:
        if question.problem:
            return not_run(question.problem.reason, suite=self.suite is not None)
        name = f"{question.repository}@{question.digest}"
        with self._locks.setdefault(name, threading.Lock()), self._left_as_it_was(question, name):
            started = time.monotonic()
            problem = self._pull(question, look)
            seconds = round(time.monotonic() - started, 2)
            pulled = CheckResult.of(PULL, problem, seconds=seconds)
            if problem:
                return pulled, *not_run("it could not be pulled", suite=self.suite is not None)[1:]
            look("versions inside")
            return pulled, self._versions(name, question, look), *self._tested(name, question, look)

    def stop(self) -> None:
        if self.suite:
            self.suite.stop()

    def _tested(self, image: str, question: Question, look: Look) -> Inside:
        """All image checks as one."""
        if self.suite is None:
            return ()
        target = Target(
            name=image, ref=image, row=question.row, digest=question.digest, suite="", waivers=question.waivers
        )
        log = self.logs / f"{file_name(image)}.log"
        verdict = self.suite.judge(target, log, lambda place: look(f"image checks, {place}"))
        failed = [f"{check.id}: {check.summary}" for check in verdict.of(Outcome.FAILED)]
        told = [f"{tally(verdict.checks)}: {failed[0]}", *failed[1:], f"the whole log: {log}"] if failed else []
        return (CheckResult(id=SUITE, outcome=verdict.outcome, reason="\n".join(told), seconds=verdict.seconds),)

    @contextlib.contextmanager
    def _left_as_it_was(self, question: Question, name: str) -> Iterator[None]:
        """A name that was not in the engine before is taken away again."""
        was_there = self._has(str(question.repository), name)
        try:
            yield
        finally:
            if not was_there:
                with contextlib.suppress(EngineError, ImageNotFound), answering():
                    self.engine.client.api.remove_image(name)

    def _has(self, repository: str, name: str) -> bool:
        with answering():
            entries = self.engine.client.api.images(name=repository)
        return any(name in ((entry.get("RepoTags") or []) + (entry.get("RepoDigests") or [])) for entry in entries)

    def _pull(self, question: Question, look: Look) -> Problem | None:
        """Why it cannot be pulled; None when it was."""
        progress = _Progress(look)
        try:
            with answering():
                for event in self.engine.client.api.pull(
                    str(question.repository), tag=question.digest, stream=True, decode=True,
                    auth_config=login_for_engine(question.repository.host),
                ):  # fmt: skip
                    if self.session.stopping.is_set():
                        raise KeyboardInterrupt
                    if "error" in event:
                        return Problem(reason=f"The engine cannot pull it: {event['error']}")
                    progress.feed(event)
            check_pulled(self.engine, f"{question.repository}@{question.digest}")
        except ImageNotFound as error:
            return Problem(reason=f"The engine cannot pull it: {error.explanation}")
        except TorchbakeError as error:
            return problem_of(error)
        return None

    def _versions(self, image: str, question: Question, look: Look) -> CheckResult:
        if question.release:
            return judge_release(self._say_version(image), question.release)
        place = InContainers(
            engine=self.engine, image=image, family="cuda", gpu=_NO_GPU, session=self.session,
            mounted=own_toolbox(self.engine, question.labels),
        )  # fmt: skip
        nodes = nodes_of(_VERSIONS_JOB, question.expected, self.timeout, toolbox=place.toolbox, master=place.master)
        (found,) = judge(_VERSIONS_JOB, place.run(_VERSIONS_JOB, nodes, _VERSIONS_JOB.limit(self.timeout), look))
        return found.model_copy(update={"id": VERSIONS})

    def _say_version(self, image: str) -> Ended:
        session = self.session
        with Cluster(
            self.engine, image, Box(network=False), run=session.id, stopping=session.stopping
        ) as cluster:  # fmt: skip
            return cluster.run([Node(command=("--version",))], timeout=self.timeout)[0]


def judge_release(ended: Ended, release: str) -> CheckResult:
    """Whether an init image's program is of this release: its last word after --version. Pure."""
    said = ended.stdout.split()
    problem = None
    if not ended.good:
        problem = Problem(reason=f"--version {ended.how}")
    elif said[-1:] != [release]:
        problem = Problem(reason=f"it is {said[-1] if said else 'of no version'}, not {release}")
    return CheckResult.of(VERSIONS, problem, seconds=ended.seconds)


def not_run(reason: str, *, suite: bool = False) -> Inside:
    """All that is found by looking inside, none of which was looked for; the ``suite`` too, where it was asked for."""
    names = (PULL, VERSIONS, SUITE) if suite else (PULL, VERSIONS)
    return tuple(CheckResult(id=name, outcome=Outcome.NOT_RUN, reason=reason) for name in names)


class _Progress:
    """An engine's events of a pull as one line: how much of the layers has come."""

    def __init__(self, look: Look) -> None:
        self._look, self._layers = look, dict[str, tuple[int, int]]()

    def feed(self, event: Mapping[str, Any]) -> None:
        detail = event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and detail.get("total"):
            self._layers[str(event.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
        come, whole = (sum(part) for part in zip(*self._layers.values(), strict=True)) if self._layers else (0, 0)
        done = f", {human(come)} of {human(whole)}" if whole else ""
        self._look(f"pulling{done}")
