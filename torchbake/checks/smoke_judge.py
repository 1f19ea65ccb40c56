"""Smoke tests: what payloads found, by their lines and by how the containers or processes ended."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.smoke_jobs import Job
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.engine.runner import Ended

# These need nothing but a GPU: where one was given and they say that they cannot run, something is broken.
_NEEDS_ONLY_A_GPU = ("tensor", "autograd", "versions", "examples", "nccl")
_NOT_RUN = 77  # exit code of `smoke`


class Line(BaseModel):
    """What a payload prints: one line of JSON."""

    model_config = ConfigDict(extra="ignore")

    payload: str
    device: str
    verdict: Outcome
    reason: str = ""
    seconds: float = 0
    checks: dict[str, Any] = Field(default_factory=dict)
    figures: dict[str, Any] = Field(default_factory=dict)


def judge(job: Job, ended: Sequence[Ended]) -> tuple[CheckResult, ...]:
    """What a job's payloads found. Every container is judged: a good line from the master saves no worker."""
    if job.layout is None:
        return tuple(_single(job, ended[0]))
    return tuple(_together(job, ended))


@dataclass(frozen=True)
class _Single:
    """One container in which payloads ran one after the other."""

    job: Job
    ended: Ended

    @cached_property
    def lines(self) -> dict[str, list[Line]]:
        return _by_payload((self.ended,))

    @property
    def broken(self) -> str:
        """Why the end of the process contradicts its lines; empty when it does not."""
        outcomes = {line.verdict for lines in self.lines.values() for line in lines}
        told = 1 if Outcome.FAILED in outcomes else 0 if Outcome.PASSED in outcomes else _NOT_RUN
        return "" if self.ended.code == told and not self.ended.timed_out else self.ended.how


def _single(job: Job, ended: Ended) -> Iterator[CheckResult]:
    run = _Single(job, ended)
    silent = [name for name in job.payloads if name not in run.lines]
    for name in job.payloads:
        if name in run.lines:
            problem = run.broken if not silent and name == job.payloads[-1] else ""
            problem = f"it said {run.lines[name][0].verdict}, but then it {problem}" if problem else ""
            yield _result(job, run.lines[name], problem=_with_tail(problem, ended) if problem else "", more={})
        elif name == silent[0]:
            yield _failed(job, name, _with_tail(f"no verdict: {_end_of(ended)}", ended), ended.seconds)
        else:
            reason = f"smoke ended before it, in {silent[0]}"
            yield CheckResult(id=job.check_id(name), outcome=Outcome.NOT_RUN, reason=reason)


@dataclass(frozen=True)
class _Together:
    """The nodes of a job, and what their ranks said of its payloads."""

    job: Job
    ended: Sequence[Ended]

    @cached_property
    def lines(self) -> dict[str, list[Line]]:
        return _by_payload(self.ended)

    @cached_property
    def last(self) -> str:
        """The payload in which it ended: the first that is silent or has failed, else the last one."""
        silent = next((name for name in self.job.payloads if not self._passed_over(name)), None)
        return silent or self.job.payloads[-1]

    @cached_property
    def first_failed(self) -> Ended | None:
        """The node that failed first; ranks that only say that they cannot run have not failed."""
        bad = [node for node in self.ended if not node.good]
        outcomes = {line.verdict for lines in self.lines.values() for line in lines}
        if outcomes == {Outcome.NOT_RUN} and all(node.code == _NOT_RUN for node in bad):
            bad = []
        return min(bad, key=lambda node: (not node.out_of_memory, node.at)) if bad else None

    def problem_of(self, name: str) -> str:
        """Why a payload is not what its line says; empty when it is."""
        lines, first = self.lines.get(name, []), self.first_failed
        if len(lines) > 1:
            return f"{len(lines)} ranks each printed a verdict: they did not work together"
        if first and name == self.last:
            told = lines and lines[0].verdict is Outcome.FAILED
            return _with_tail(lines[0].reason if told else _end_of(first), first)
        return "" if lines else f"no verdict, though every node {self.ended[0].how}"

    def _passed_over(self, name: str) -> bool:
        return name in self.lines and self.lines[name][0].verdict is not Outcome.FAILED


def _together(job: Job, ended: Sequence[Ended]) -> Iterator[CheckResult]:
    run = _Together(job, ended)
    seconds = max(node.seconds for node in ended)
    nodes = {node.name: {"code": node.code, "seconds": round(node.seconds, 1)} for node in ended}
    for name in job.payloads:
        lines, problem = run.lines.get(name, []), run.problem_of(name)
        if lines:
            yield _result(job, lines[:1], problem=problem, more={"nodes": nodes, "wall": seconds})
        elif name == run.last:
            yield _failed(job, name, problem, seconds, nodes=nodes)
        else:
            reason = f"the job ended before it, in {run.last}"
            yield CheckResult(id=job.check_id(name), outcome=Outcome.NOT_RUN, reason=reason)


def _result(job: Job, lines: Sequence[Line], *, problem: str, more: Mapping[str, Any]) -> CheckResult:
    line = lines[0]
    outcome, reason = line.verdict, line.reason
    if len(lines) > 1:
        problem = problem or f"it printed {len(lines)} verdicts"
    if not problem and line.device != job.device:
        problem = f"it ran on {line.device}, and was to run on {job.device}"
    if not problem and outcome is Outcome.NOT_RUN and job.given_gpu and line.payload in _NEEDS_ONLY_A_GPU:
        problem = f"a GPU was given, but it did not run: {line.reason}"
    if problem:
        outcome, reason = Outcome.FAILED, problem
    figures = {"device": line.device, **line.figures, **({"checks": line.checks} if line.checks else {}), **more}
    return CheckResult(
        id=job.check_id(line.payload), outcome=outcome, reason=reason, seconds=line.seconds, figures=figures
    )


def _failed(job: Job, payload: str, reason: str, seconds: float, **figures: Any) -> CheckResult:
    return CheckResult(
        id=job.check_id(payload), outcome=Outcome.FAILED, reason=reason, seconds=seconds, figures=figures
    )


def _by_payload(ended: Iterable[Ended]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for node in ended:
        for line in lines_in(node.stdout):
            found.setdefault(line.payload, []).append(line)
    return found


def lines_in(stdout: str) -> Iterator[Line]:
    """The verdicts among what was printed; an entrypoint that greets people on stdout does no harm."""
    for text in stdout.splitlines():
        if re.match(r'\{.*"payload"', text):
            try:
                yield Line.model_validate_json(text)
            except ValidationError:
                continue  # no verdict: that its payload has none is what is reported


def _end_of(ended: Ended) -> str:
    """How it ended and, in one line with it, what it said of that: `run` names the first failure of a job."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("run: the job failed")), lines[-1] if lines else "")
    return f"{ended.name} {ended.how}" + (f": {said[:200]}" if said else "")


def _with_tail(reason: str, ended: Ended, *, most: int = 12) -> str:
    """A reason, then the last lines of stderr."""
    said = [line.rstrip() for line in ended.stderr.splitlines() if line.strip()]
    return "\n".join((reason, *(f"    {line[:300]}" for line in said[-most:])))
