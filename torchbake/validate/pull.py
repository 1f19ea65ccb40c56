"""Pull of an image by its digest, and checks in its containers. The engine is left as it was."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from docker.errors import ImageNotFound

from torchbake.checks.pytest_run import CheckTarget, Suite
from torchbake.checks.reports import file_name
from torchbake.checks.smoke_jobs import SmokeJob, nodes_of
from torchbake.checks.smoke_judge import judge
from torchbake.checks.smoke_run import InContainers, Session, own_toolbox
from torchbake.checks.verdict import CheckResult, Outcome, tally
from torchbake.core.problem import Problem, problem_of, unknown
from torchbake.core.sizes import human
from torchbake.engine.architecture import no_emulator
from torchbake.engine.client import Engine, answering
from torchbake.engine.containers import Cluster, ContainerNode, ContainerSettings
from torchbake.engine.gpu import GpuAccess
from torchbake.engine.image_check import check_pulled
from torchbake.engine.runner import ContainerEnd
from torchbake.errors import EngineError, TorchbakeError
from torchbake.matrix.spec import AMD64
from torchbake.oci.reference import Repository
from torchbake.registry.credentials import login_for_engine
from torchbake.validate.expect import Versions
from torchbake.validate.judge import Inside

PULL, VERSIONS, SUITE = "registry.pull", "registry.versions", "registry.suite"
_VERSIONS_JOB = SmokeJob(payloads=("versions",), device="cpu")
_NO_GPU = GpuAccess(how="none", reason="versions need no GPU")

Look = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class InspectionRequest:
    """The expected content of a digest: versions, or an init image's release. ``problem``: why it is not pulled.

    ``row`` is the image's id in the matrix (empty: none), ``waivers`` are checks that may fail, with the reasons.
    """

    repository: Repository
    digest: str
    labels: Mapping[str, str]
    expected: Versions
    release: str = ""
    problem: Problem | None = None
    row: str = ""
    waivers: Mapping[str, str] = field(default_factory=dict)
    platform: str = AMD64


class Looker(Protocol):
    """Checks of the content of images."""

    def look_into(self, question: InspectionRequest, look: Look) -> Inside:
        """Return the results of `registry.pull`, `registry.versions`, and `registry.suite` if it is requested.

        Raise KeyboardInterrupt once the run is stopped.
        """

    def stop(self) -> None:
        """End the processes of a suite."""


@dataclass(frozen=True, kw_only=True)
class NoInspection:
    """Skips the checks of the content, for a reason."""

    reason: str

    def look_into(self, question: InspectionRequest, look: Look) -> Inside:
        return not_run(question.problem.reason if question.problem else self.reason)

    def stop(self) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class EngineInspection:
    """Checks the content in containers of an engine; ``timeout`` is seconds for each. May raise EngineError.

    ``suite`` runs all image checks, with their logs in ``logs``; None: they are not requested.
    """

    engine: Engine
    session: Session
    timeout: int = 300
    suite: Suite | None = None
    logs: Path = Path()
    _locks: dict[str, threading.Lock] = field(default_factory=dict)

    def look_into(self, question: InspectionRequest, look: Look) -> Inside:
        if question.problem:
            return not_run(question.problem.reason, suite=self.suite is not None)
        name = f"{question.repository}@{question.digest}"
        with self._locks.setdefault(name, threading.Lock()), self._left_as_it_was(question, name):
            start = time.monotonic()
            problem = self._pull(question, look)
            seconds = round(time.monotonic() - start, 2)
            check = CheckResult.of(PULL, problem, seconds=seconds)
            if problem:
                return check, *not_run("it could not be pulled", suite=self.suite is not None)[1:]
            look("versions inside")
            return check, self._versions(name, question, look), *self._run_suite(name, question, look)

    def stop(self) -> None:
        if self.suite:
            self.suite.stop()

    def _run_suite(self, image: str, question: InspectionRequest, look: Look) -> Inside:
        if self.suite is None:
            return ()
        target = CheckTarget(
            name=image, ref=image, row=question.row, digest=question.digest, suite="", waivers=question.waivers
        )
        log = self.logs / f"{file_name(image)}.log"
        verdict = self.suite.judge(target, log, lambda place: look(f"image checks, {place}"))
        failed = [f"{check.id}: {check.summary}" for check in verdict.of(Outcome.FAILED)]
        lines = [f"{tally(verdict.checks)}: {failed[0]}", *failed[1:], f"the whole log: {log}"] if failed else []
        return (CheckResult(id=SUITE, outcome=verdict.outcome, reason="\n".join(lines), seconds=verdict.seconds),)

    @contextlib.contextmanager
    def _left_as_it_was(self, question: InspectionRequest, name: str) -> Iterator[None]:
        """Remove the image's name from the engine at the end, unless it was there before."""
        entries = self.engine.list_images(name=str(question.repository))
        was_there = any(name in (each.get("RepoTags") or []) + (each.get("RepoDigests") or []) for each in entries)
        try:
            yield
        finally:
            if not was_there:
                with contextlib.suppress(EngineError, ImageNotFound), answering():
                    self.engine.client.api.remove_image(name)

    def _pull(self, question: InspectionRequest, look: Look) -> Problem | None:
        layers: dict[str, tuple[int, int]] = {}
        try:
            with answering():
                for event in self.engine.client.api.pull(
                    str(question.repository), tag=question.digest, stream=True, decode=True,
                    auth_config=login_for_engine(question.repository.host), platform=question.platform,
                ):  # fmt: skip
                    if self.session.stopping.is_set():
                        raise KeyboardInterrupt
                    if "error" in event:
                        return Problem(reason=f"The engine cannot pull it: {event['error']}")
                    look(f"pulling{_progress(event, layers)}")
            check_pulled(self.engine, f"{question.repository}@{question.digest}")
        except ImageNotFound as error:
            return Problem(reason=f"The engine cannot pull it: {error.explanation}")
        except TorchbakeError as error:
            return problem_of(error)
        return None

    def _versions(self, image: str, question: InspectionRequest, look: Look) -> CheckResult:
        session = self.session
        if question.release:
            with Cluster(
                self.engine, image, ContainerSettings(network=False), run=session.id, stopping=session.stopping
            ) as cluster:  # fmt: skip
                end = cluster.run([ContainerNode(command=("--version",))], timeout=self.timeout)[0]
            return judge_release(end, question.release)
        place = InContainers(
            engine=self.engine, image=image, family="cuda", gpu=_NO_GPU, session=session,
            mounted=own_toolbox(self.engine, question.labels),
        )  # fmt: skip
        nodes = nodes_of(_VERSIONS_JOB, question.expected, self.timeout, toolbox=place.toolbox, master=place.master)
        (check,) = judge(_VERSIONS_JOB, place.run(_VERSIONS_JOB, nodes, _VERSIONS_JOB.limit(self.timeout), look))
        return check.model_copy(update={"id": VERSIONS})


def judge_release(end: ContainerEnd, release: str) -> CheckResult:
    """Check the release of an init image's program: the last word that it prints for --version. Pure."""
    words = end.stdout.split()
    problem = None
    if end.is_foreign:
        problem = unknown(no_emulator())
    elif not end.good:
        problem = Problem(reason=f"--version {end.how}")
    elif words[-1:] != [release]:
        problem = Problem(reason=f"it is {words[-1] if words else 'of no version'}, not {release}")
    return CheckResult.of(VERSIONS, problem, seconds=end.seconds)


def not_run(reason: str, *, suite: bool = False) -> Inside:
    """Return the results of checks of the content that were not run, including those of the ``suite``."""
    names = (PULL, VERSIONS, SUITE) if suite else (PULL, VERSIONS)
    return tuple(CheckResult(id=name, outcome=Outcome.NOT_RUN, reason=reason) for name in names)


def _progress(event: Mapping[str, Any], layers: dict[str, tuple[int, int]]) -> str:
    """Add an event of a pull to ``layers``, and return the bytes of all layers so far."""
    detail = event.get("progressDetail") or {}
    if event.get("status") == "Downloading" and detail.get("total"):
        layers[str(event.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
    pulled, total = (sum(sizes[part] for sizes in layers.values()) for part in (0, 1))
    return f", {human(pulled)} of {human(total)}" if total else ""
