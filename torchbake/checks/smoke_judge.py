"""Results of smoke tests, from the lines of payloads and the ends of containers or processes."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.smoke_jobs import SmokeJob
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.problem import unknown
from torchbake.engine.architecture import no_emulator
from torchbake.engine.runner import ContainerEnd

# These only need a GPU: if they have one and report that they cannot run, something is broken.
_NEEDS_ONLY_A_GPU = ("tensor", "autograd", "versions", "examples", "nccl")
_NOT_RUN = 77  # exit code of `smoke`


class PayloadLine(BaseModel):
    """The line of JSON that a payload prints."""

    model_config = ConfigDict(extra="ignore")

    payload: str
    device: str
    verdict: Outcome
    reason: str = ""
    seconds: float = 0
    checks: dict[str, Any] = Field(default_factory=dict)
    figures: dict[str, Any] = Field(default_factory=dict)


def judge(job: SmokeJob, ends: Sequence[ContainerEnd]) -> tuple[CheckResult, ...]:
    """Return the results of a job's payloads. Every node counts: rank 0 can pass while another one failed.

    If the machine cannot run the image's programs at all, the payloads were not run.
    """
    if any(node.is_foreign for node in ends):
        return tuple(CheckResult.of(name, unknown(no_emulator())) for name in job.check_ids)
    lines: dict[str, list[PayloadLine]] = {}
    for node in ends:
        for line in lines_in(node.stdout):
            lines.setdefault(line.payload, []).append(line)
    return tuple(_judge_single(job, ends[0], lines) if job.layout is None else _judge_nodes(job, ends, lines))


def _judge_single(job: SmokeJob, end: ContainerEnd, lines: Mapping[str, list[PayloadLine]]) -> Iterator[CheckResult]:
    """Judge one container, in which payloads ran one after another."""
    silent = [name for name in job.payloads if name not in lines]
    outcomes = {line.verdict for matches in lines.values() for line in matches}
    code = 1 if Outcome.FAILED in outcomes else 0 if Outcome.PASSED in outcomes else _NOT_RUN
    contradicts = end.code != code or end.timed_out
    for name in job.payloads:
        if name in lines:
            problem = ""
            if contradicts and not silent and name == job.payloads[-1]:
                problem = _with_tail(f"it said {lines[name][0].verdict}, but then it {end.how}", end)
            yield _result(job, lines[name], problem=problem, more={})
        elif name == silent[0]:
            yield _failed_check(job, name, _with_tail(f"no verdict: {_end_of(end)}", end), end.seconds)
        else:
            reason = f"smoke ended before it, in {silent[0]}"
            yield CheckResult(id=job.check_id(name), outcome=Outcome.NOT_RUN, reason=reason)


def _judge_nodes(
    job: SmokeJob, ends: Sequence[ContainerEnd], lines: Mapping[str, list[PayloadLine]]
) -> Iterator[CheckResult]:
    """Judge several nodes, whose ranks ran each payload together."""
    passed = [name for name in job.payloads if name in lines and lines[name][0].verdict is not Outcome.FAILED]
    last = next((name for name in job.payloads if name not in passed), job.payloads[-1])  # in which the job ended
    failure, seconds = _first_failure(ends, lines), max(node.seconds for node in ends)
    nodes = {node.name: {"code": node.code, "seconds": round(node.seconds, 1)} for node in ends}
    for name in job.payloads:
        matches, problem = lines.get(name, []), ""
        if len(matches) > 1:
            problem = f"{len(matches)} ranks each printed a verdict: they did not work together"
        elif failure and name == last:
            has_reason = matches and matches[0].verdict is Outcome.FAILED
            problem = _with_tail(matches[0].reason if has_reason else _end_of(failure), failure)
        elif not matches:
            problem = f"no verdict, though every node {ends[0].how}"
        if matches:
            yield _result(job, matches[:1], problem=problem, more={"nodes": nodes, "wall": seconds})
        elif name == last:
            yield _failed_check(job, name, problem, seconds, nodes=nodes)
        else:
            reason = f"the job ended before it, in {last}"
            yield CheckResult(id=job.check_id(name), outcome=Outcome.NOT_RUN, reason=reason)


def _first_failure(ends: Sequence[ContainerEnd], lines: Mapping[str, list[PayloadLine]]) -> ContainerEnd | None:
    """Return the node that failed first. Nodes whose ranks only report that they cannot run have not failed."""
    bad = [node for node in ends if not node.good]
    outcomes = {line.verdict for matches in lines.values() for line in matches}
    if outcomes == {Outcome.NOT_RUN} and all(node.code == _NOT_RUN for node in bad):
        return None
    return min(bad, key=lambda node: (not node.out_of_memory, node.at), default=None)


def _result(job: SmokeJob, lines: Sequence[PayloadLine], *, problem: str, more: Mapping[str, Any]) -> CheckResult:
    line = lines[0]
    outcome, reason = line.verdict, line.reason
    if len(lines) > 1:
        problem = problem or f"it printed {len(lines)} verdicts"
    if not problem and line.device != job.device:
        problem = f"it ran on {line.device}, not on {job.device}"
    if not problem and outcome is Outcome.NOT_RUN:
        problem = _broken_promise(job, line)
    if problem:
        outcome, reason = Outcome.FAILED, problem
    figures = {"device": line.device, **line.figures, **({"checks": line.checks} if line.checks else {}), **more}
    return CheckResult(
        id=job.check_id(line.payload), outcome=outcome, reason=reason, seconds=line.seconds, figures=figures
    )


def _broken_promise(job: SmokeJob, line: PayloadLine) -> str:
    """Return the reason why a payload that did not run has failed; empty if its job lacks a prerequisite."""
    if line.payload == "compile" and job.given_compiler and (job.device == "cpu" or job.given_gpu):
        return f"the image's label says that it has a compiler, but it did not run: {line.reason}"
    if line.payload in _NEEDS_ONLY_A_GPU and job.given_gpu:
        return f"a GPU was given, but it did not run: {line.reason}"
    return ""


def _failed_check(job: SmokeJob, payload: str, reason: str, seconds: float, **figures: Any) -> CheckResult:
    return CheckResult(
        id=job.check_id(payload), outcome=Outcome.FAILED, reason=reason, seconds=seconds, figures=figures
    )


def lines_in(stdout: str) -> Iterator[PayloadLine]:
    """Find the verdicts among other output, such as an entrypoint's greeting."""
    for text in stdout.splitlines():
        if re.match(r'\{.*"payload"', text):
            with contextlib.suppress(ValidationError):  # the payload is then reported as one without a verdict
                yield PayloadLine.model_validate_json(text)


def _end_of(end: ContainerEnd) -> str:
    """Return how a node ended, and its own reason: `run` names the first failure of a job, else its last line."""
    lines = [line.strip() for line in end.stderr.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("run: the job failed")), lines[-1] if lines else "")
    return f"{end.name} {end.how}" + (f": {reason[:200]}" if reason else "")


def _with_tail(reason: str, end: ContainerEnd, *, most: int = 12) -> str:
    lines = [line.rstrip() for line in end.stderr.splitlines() if line.strip()]
    return "\n".join((reason, *(f"    {line[:300]}" for line in lines[-most:])))
