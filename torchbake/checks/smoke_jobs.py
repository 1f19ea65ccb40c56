"""Jobs of smoke tests: their payloads and devices, and the commands and variables of their nodes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torchbake.checks.verdict import CheckResult
from torchbake.core.problem import Problem, unknown
from torchbake.engine.containers import ORDERS, ContainerNode, Order
from torchbake.engine.gpu import GpuAccess
from torchbake.matrix.spec import TOOLBOX

PREFIX = "smoke"
SINGLE = ("tensor", "autograd", "compile", "export", "loader", "versions", "examples")
TOGETHER = {"ddp": ("cpu",), "nccl": ("cuda",), "examples": ("cpu", "cuda")}  # with their devices
PAYLOADS = tuple(dict.fromkeys((*SINGLE, *TOGETHER)))
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_SPARE = 60  # seconds above the payloads' limit, in which a container starts, meets the others and ends

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class SmokeOptions:
    """Options of smoke tests. ``timeout`` is seconds for each payload, ``gpu_nodes`` the nodes of a job on GPUs."""

    gpu: str = "auto"
    nodes: int = 2
    gpu_nodes: int = 1
    nproc: int = 2
    payloads: tuple[str, ...] = PAYLOADS
    orders: tuple[Order, ...] = ORDERS
    timeout: int = 300


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """The ranks of a job. ``nproc`` is None for one rank on each GPU, ``order`` is None on a single node."""

    nodes: int
    nproc: int | None
    order: Order | None = None

    def __str__(self) -> str:
        return ",".join(filter(None, (f"{self.nodes}x{self.nproc or 'auto'}", self.order)))


@dataclass(frozen=True, kw_only=True)
class SmokeJob:
    """Payloads that are run one after another: in one container, or on all ranks of a layout.

    A job with a ``problem`` is not run; its checks fail or are unknown. ``given_gpu``: its containers have a GPU.
    ``given_compiler``: its image promises that torch.compile works.
    """

    payloads: tuple[str, ...]
    device: Device
    layout: RankLayout | None = None
    problem: Problem | None = None
    given_gpu: bool = False
    given_compiler: bool = False

    def check_id(self, payload: str) -> str:
        """``smoke.tensor[cpu]``, ``smoke.ddp[gloo,3x2,workers-first]``."""
        inner = f"{_BACKENDS[self.device]},{self.layout}" if self.layout else self.device
        return f"{PREFIX}.{payload}[{inner}]"

    @property
    def check_ids(self) -> tuple[str, ...]:
        return tuple(map(self.check_id, self.payloads))

    def limit(self, timeout: int) -> int:
        """Return the seconds after which its containers are killed."""
        return timeout * len(self.payloads) + _SPARE

    def not_started(self) -> tuple[CheckResult, ...]:
        """Return the results of a job that is not run because of its problem."""
        return tuple(CheckResult.of(name, self.problem) for name in self.check_ids)


def jobs_of(family: str, gpu: GpuAccess, options: SmokeOptions, *, compiler: bool = False) -> tuple[SmokeJob, ...]:
    """Return the jobs for an image, or for a host's Python, of an accelerator family.

    A CPU image is tested on the CPU only, a CUDA image on both devices. Without a GPU its CUDA jobs have a problem,
    which is a failure if a GPU is required. With a ``compiler``, torch.compile must work.
    """
    problem = gpu.problem(options.gpu)
    jobs = [*_jobs_on("cpu", options)]
    if family == "cuda":
        jobs += (replace(job, problem=problem, given_gpu=not problem) for job in _jobs_on("cuda", options))
    elif "nccl" in options.payloads and options.payloads != PAYLOADS:
        problem = unknown("NCCL is for GPUs, and this is a CPU build")
        on_gpu = (job for job in _jobs_on("cuda", options) if "nccl" in job.payloads)
        jobs += (replace(job, payloads=("nccl",), problem=problem) for job in on_gpu)
    return tuple(replace(job, given_compiler=compiler) for job in jobs)


def _jobs_on(device: Device, options: SmokeOptions) -> Iterator[SmokeJob]:
    single = tuple(name for name in SINGLE if name in options.payloads)
    if single:
        yield SmokeJob(payloads=single, device=device)
    for turn, layout in enumerate(_layouts(device, options)):
        # Only ddp tries each start order. Payloads that a single container runs, too, are run in the first order, and
        # not on a single rank.
        repeats = SINGLE if turn or (layout.nodes, layout.nproc) == (1, 1) else ()
        payloads = tuple(
            name
            for name, devices in TOGETHER.items()
            if name in options.payloads and device in devices and name not in repeats
        )
        if payloads:
            yield SmokeJob(payloads=payloads, device=device, layout=layout)


def _layouts(device: Device, options: SmokeOptions) -> Iterator[RankLayout]:
    """Return the layouts on a device. Each GPU has one rank, as NCCL refuses two ranks on one GPU."""
    if device == "cuda":
        order = options.orders[0] if options.gpu_nodes > 1 else None
        yield RankLayout(nodes=options.gpu_nodes, nproc=None, order=order)
    elif options.nodes == 1:
        yield RankLayout(nodes=1, nproc=options.nproc)
    else:
        yield from (RankLayout(nodes=options.nodes, nproc=options.nproc, order=order) for order in options.orders)


def nodes_of(
    job: SmokeJob, expected: Mapping[str, str | None], timeout: int, *, toolbox: str = TOOLBOX, master: str = "node0"
) -> tuple[ContainerNode, ...]:
    """Return the nodes of a job. ``toolbox`` is the folder of `run` and `smoke` in its containers or on the host."""
    words = [f"{toolbox}/smoke", *job.payloads, "--device", job.device, "--timeout", str(timeout)]
    if "versions" in job.payloads:
        words += ["--expect", json.dumps(expected)]
    quiet = {"TORCHBAKE_BANNER": "0"}
    if job.layout is None:
        return (ContainerNode(command=tuple(words), env=quiet),)
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
    return tuple(
        ContainerNode(command=command, env={**shared, "NODE_RANK": str(rank)}) for rank in range(job.layout.nodes)
    )
