"""Smoke tests: which payloads run where, what their containers or processes are told, and what they found."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.problem import Problem, unknown
from torchbake.engine.containers import ORDERS, Node, Order
from torchbake.engine.gpu import Gpu
from torchbake.engine.runner import Ended
from torchbake.matrix.spec import TOOLBOX

PREFIX = "smoke"
SINGLE = ("tensor", "autograd", "compile", "export", "loader", "versions", "examples")
TOGETHER = {"ddp": ("cpu",), "nccl": ("cuda",), "examples": ("cpu", "cuda")}  # with the devices that they are for
PAYLOADS = tuple(dict.fromkeys((*SINGLE, *TOGETHER)))
# These need nothing but a GPU: where one was given and they say that they cannot run, something is broken.
_NEEDS_ONLY_A_GPU = ("tensor", "autograd", "versions", "examples", "nccl")
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_NOT_RUN = 77  # exit code of `smoke`
_SPARE = 60  # seconds above the payloads' own limit, in which a container starts, meets the others and ends

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How images are tested. ``timeout``: seconds for each payload. ``gpu_nodes``: of a job on GPUs."""

    gpu: str = "auto"
    nodes: int = 2
    gpu_nodes: int = 1
    nproc: int = 2
    payloads: tuple[str, ...] = PAYLOADS
    orders: tuple[Order, ...] = ORDERS
    timeout: int = 300


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Of a job of several ranks. ``nproc`` is None for one on each GPU, ``order`` is None on a single node."""

    nodes: int
    nproc: int | None
    order: Order | None = None

    def __str__(self) -> str:
        return ",".join(filter(None, (f"{self.nodes}x{self.nproc or 'auto'}", self.order)))


@dataclass(frozen=True, kw_only=True)
class Job:
    """Payloads that are run together: in one container one after the other, or one payload on all ranks of a layout.

    ``problem``: why the job is not run, which is a failure or leaves its checks unknown. ``given_gpu``: its containers
    have one.
    """

    payloads: tuple[str, ...]
    device: Device
    layout: Layout | None = None
    problem: Problem | None = None
    given_gpu: bool = False

    def check_id(self, payload: str) -> str:
        """``smoke.tensor[cpu]``, ``smoke.ddp[gloo,3x2,workers-first]``."""
        inner = f"{_BACKENDS[self.device]},{self.layout}" if self.layout else self.device
        return f"{PREFIX}.{payload}[{inner}]"

    @property
    def check_ids(self) -> tuple[str, ...]:
        return tuple(map(self.check_id, self.payloads))

    def limit(self, timeout: int) -> int:
        """Seconds after which its containers are killed, if they did not end before by themselves."""
        return timeout * len(self.payloads) + _SPARE

    def not_started(self) -> tuple[CheckResult, ...]:
        """What its problem makes of its checks."""
        return tuple(CheckResult.of(name, self.problem) for name in self.check_ids)


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


def jobs_of(family: str, gpu: Gpu, options: Options) -> tuple[Job, ...]:
    """All that is run on an image, or on a host's Python, of an accelerator family.

    A CPU image is judged on the CPU alone. A CUDA image is judged on both devices: without a GPU its jobs on the
    device cuda are there too, each with that as its problem. Where a GPU is required, to have none is a failure.
    """
    problem = _no_gpu(gpu, options.gpu)
    jobs = [*_jobs_on("cpu", options)]
    if family == "cuda":
        jobs += (replace(job, problem=problem, given_gpu=not problem) for job in _jobs_on("cuda", options))
    elif "nccl" in options.payloads and options.payloads != PAYLOADS:
        problem = unknown("NCCL is for GPUs, and this is a CPU build")
        jobs += [replace(job, problem=problem) for job in _nccl(options)]
    return tuple(jobs)


def _no_gpu(gpu: Gpu, mode: str) -> Problem | None:
    """Why nothing runs on a GPU; None when it does. Where a GPU is required, that is known to be wrong."""
    reason = gpu.why_not(mode)
    return Problem(reason=reason, unknown=mode != "require") if reason else None


def _nccl(options: Options) -> Iterator[Job]:
    return (job for job in _jobs_on("cuda", options) if job.payloads == ("nccl",))


def _jobs_on(device: Device, options: Options) -> Iterator[Job]:
    single = tuple(name for name in SINGLE if name in options.payloads)
    if single:
        yield Job(payloads=single, device=device)
    for payload, devices in TOGETHER.items():
        if payload in options.payloads and device in devices:
            layouts = list(_layouts(device, options))
            if payload in SINGLE:  # who starts first is ddp's to try, and one rank has been tried already
                layouts = [layout for layout in layouts[:1] if (layout.nodes, layout.nproc) != (1, 1)]
            for layout in layouts:
                yield Job(payloads=(payload,), device=device, layout=layout)


def _layouts(device: Device, options: Options) -> Iterator[Layout]:
    """On GPUs a node with a rank for each: two ranks on one GPU are an error to NCCL."""
    if device == "cuda":
        order = options.orders[0] if options.gpu_nodes > 1 else None
        yield Layout(nodes=options.gpu_nodes, nproc=None, order=order)
    elif options.nodes == 1:
        yield Layout(nodes=1, nproc=options.nproc)
    else:
        yield from (Layout(nodes=options.nodes, nproc=options.nproc, order=order) for order in options.orders)


def nodes_of(
    job: Job, expected: Mapping[str, str | None], timeout: int, *, toolbox: str = TOOLBOX, master: str = "node0"
) -> tuple[Node, ...]:
    """What the job's containers run. ``toolbox`` is the folder of `run` and `smoke` there."""
    words = [f"{toolbox}/smoke", *job.payloads, "--device", job.device, "--timeout", str(timeout)]
    if "versions" in job.payloads:
        words += ["--expect", json.dumps(expected)]
    quiet = {"TORCHBAKE_BANNER": "0"}
    if job.layout is None:
        return (Node(command=tuple(words), env=quiet),)
    shared = {
        **quiet,
        "MODE": "distributed",
        "NNODES": str(job.layout.nodes),
        "NPROC_PER_NODE": str(job.layout.nproc or "auto"),
        "MASTER_ADDR": master,
        "RENDEZVOUS_TIMEOUT": str(_SPARE - 10),
        "GROUP_TIMEOUT": str(max(1, min(60, timeout - 10))),
        "STOP_GRACE": "5",
    }
    command = (f"{toolbox}/run", *words)
    return tuple(Node(command=command, env={**shared, "NODE_RANK": str(rank)}) for rank in range(job.layout.nodes))


def judge(job: Job, ended: Sequence[Ended]) -> tuple[CheckResult, ...]:
    """What a job's payloads found. Every container is judged: a good line from the master saves no worker."""
    if job.layout is None:
        return tuple(_single(job, ended[0]))
    return (_together(job, ended),)


@dataclass(frozen=True)
class _Single:
    """One container in which payloads ran one after the other."""

    job: Job
    ended: Ended

    @cached_property
    def lines(self) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for line in lines_in(self.ended.stdout):
            found.setdefault(line.payload, []).append(line)
        return found

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


def _together(job: Job, ended: Sequence[Ended]) -> CheckResult:
    name = job.payloads[0]
    lines = [line for node in ended for line in lines_in(node.stdout) if line.payload == name]
    seconds = max(node.seconds for node in ended)
    bad = [node for node in ended if not node.good]
    not_run = bool(lines) and lines[0].verdict is Outcome.NOT_RUN
    if not_run and all(node.code == _NOT_RUN for node in bad):
        bad = []
    first = min(bad, key=lambda node: (not node.out_of_memory, node.at)) if bad else None
    problem = ""
    if len(lines) > 1:
        problem = f"{len(lines)} ranks each printed a verdict: they did not work together"
    elif first and lines and lines[0].verdict is Outcome.FAILED:
        problem = _with_tail(lines[0].reason, first)
    elif first:
        problem = _with_tail(_end_of(first), first)
    elif not lines:
        problem = f"no verdict, though every node {ended[0].how}"
    nodes = {node.name: {"code": node.code, "seconds": round(node.seconds, 1)} for node in ended}
    if not lines:
        return _failed(job, name, problem, seconds, nodes=nodes)
    return _result(job, lines[:1], problem=problem, more={"nodes": nodes, "wall": seconds})


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


def check_ids(jobs: Iterable[Job]) -> tuple[str, ...]:
    return tuple(name for job in jobs for name in job.check_ids)
