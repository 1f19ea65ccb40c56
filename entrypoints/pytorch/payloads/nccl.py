"""Checks the collectives over NCCL, and measures their bandwidth."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from . import ddp
from .group import RankGroup
from .verdict import Checks, NotRun, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_MEGABYTES = (1, 64)
_ROUNDS = 10


def check(checks: Checks, options: "PayloadOptions") -> None:
    ddp.check(checks, replace(options, device="cuda"), more=_bandwidth)


def _bandwidth(checks: Checks, group: RankGroup) -> None:
    with checks("bandwidth"):
        if group.size == 1:
            raise NotRun("there is one rank: nothing goes from GPU to GPU")
        for size in _MEGABYTES:
            checks.figures[f"all-reduce-{size}mb-gbs"] = _all_reduce_rate(group, size * 2**20)


def _all_reduce_rate(group: RankGroup, size: int) -> float:
    """Measure the bus bandwidth in GB/s: bytes / seconds * 2(n-1)/n, as in nccl-tests (doc/PERFORMANCE.md)."""
    values = torch.ones(size // 4, device=group.device)
    for _ in range(2):  # the first calls connect
        dist.all_reduce(values)
    torch.cuda.synchronize(group.device)
    start = time.perf_counter()
    for _ in range(_ROUNDS):
        dist.all_reduce(values)
    torch.cuda.synchronize(group.device)
    seconds = (time.perf_counter() - start) / _ROUNDS
    expected = float(group.size) ** (2 + _ROUNDS)
    value = values[-1].item()
    with group.judging():
        right = abs(value - expected) <= 1e-5 * expected
        expect(right, f"ones, summed {2 + _ROUNDS} times, are {value:g} and not {expected:g}")
    n = group.size
    return size / seconds * 2 * (n - 1) / n / 1e9
