"""Checks the collectives of torch.distributed, and data-parallel training against training in one process.

Every rank runs every check in the same order: after a wrong value a rank continues with the others.
"""

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .compare import expect_close
from .device import expect_on, facts
from .group import RankGroup, expect_equal_models, open_group
from .verdict import Checks, NotRun, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_WIDTH = 1000
_BATCH = 16
_STEPS = 30
_DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16)


def check(checks: Checks, options: "PayloadOptions", more: Callable[[Checks, RankGroup], None] | None = None) -> None:
    """Run all checks, and then ``more``, the checks of another payload in the same group."""
    with open_group(checks, options.device, options.turn) as group:
        _collectives(checks, group)
        with checks("training"):
            checks.figures["loss"] = _training(checks, group)
        if more:
            more(checks, group)
        checks.figures |= facts(group.device)


def _collectives(checks: Checks, group: RankGroup) -> None:
    """Check the collectives. All numbers are whole and small, so that results are exact."""
    with checks("ranks"):
        checks.figures["ranks"] = _ranks(group)
    collectives = (_all_reduce, _broadcast, _all_gather, _ring, _barrier)
    names = ("all-reduce", "broadcast", "all-gather", "send-recv", "barrier")
    for name, test in zip(names, collectives, strict=True):
        with checks(name):
            test(group)


def _ranks(group: RankGroup) -> list[str]:
    """Return ``host/local rank`` of each rank; each must be unique."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    reports = group.gather((dist.get_rank(), f"{socket.gethostname()}/{local}"), tuple[int, str])
    expect([rank for rank, _ in reports] == list(range(group.size)), f"the ranks are {[rank for rank, _ in reports]}")
    places = [place for _, place in reports]
    expect(len(set(places)) == group.size, f"two ranks are in one place: {', '.join(places)}")
    return places


def _all_reduce(group: RankGroup) -> None:
    """Reduce the numbers of the ranks: 0 + 1 + … + N-1 = N(N-1)/2."""
    size, device = group.size, group.device
    sums = [torch.full((_WIDTH,), group.rank, dtype=dtype, device=device) for dtype in _DTYPES]
    least, most = (torch.tensor([group.rank], device=device) for _ in range(2))
    for values in sums:
        dist.all_reduce(values)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    expected = size * (size - 1) / 2
    with group.judging():
        for values, dtype in zip(sums, _DTYPES, strict=True):
            right = bool((expect_on(values, device, dtype) == expected).all())
            expect(right, f"the sum of {size} ranks as {dtype} is {values[-1].item():g}, not {expected:g}")
        matches = (least.item(), most.item())
        expect(matches == (0, size - 1), f"the least and the most of {size} ranks are {matches}")


def _broadcast(group: RankGroup) -> None:
    whole = torch.arange(_WIDTH, device=group.device)
    received = [whole * (group.rank + 1) for _ in range(group.size)]
    for source, values in enumerate(received):
        dist.broadcast(values, src=source)
    with group.judging():
        for source, values in enumerate(received):
            expect(torch.equal(values, whole * (source + 1)), f"the broadcast of rank {source} has arrived changed")


def _all_gather(group: RankGroup) -> None:
    own = torch.full((7,), group.rank * group.rank, device=group.device)
    parts = [torch.full_like(own, -1) for _ in range(group.size)]
    dist.all_gather(parts, own)
    matches = [int(part[-1]) for part in parts]
    with group.judging():
        expect(matches == [rank * rank for rank in range(group.size)], f"gathered from {group.size} ranks: {matches}")


def _ring(group: RankGroup) -> None:
    """Send from each rank to the next one."""
    if group.size == 1:
        raise NotRun("there is one rank: nobody to send to")
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    own = torch.arange(_WIDTH, device=group.device) + group.rank * _WIDTH
    received = torch.full_like(own, -1)
    both = [dist.P2POp(dist.isend, own, after), dist.P2POp(dist.irecv, received, before)]
    for request in dist.batch_isend_irecv(both):
        request.wait()
    expected = torch.arange(_WIDTH, device=group.device) + before * _WIDTH
    with group.judging():
        expect(torch.equal(received, expected), f"the values of rank {before} did not arrive here")


def _barrier(group: RankGroup) -> None:
    """Count the ranks that have reached the barrier: all of them must be counted when it lets one pass."""
    store = dist.distributed_c10d._get_default_store()
    store.add("torchbake/at-barrier", 1)
    dist.barrier()
    at = store.add("torchbake/at-barrier", 0)
    with group.judging():
        expect(at == group.size, f"it was let through when {at} of {group.size} ranks had come")


def _data(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one rank's part of a linear function with noise."""
    source = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(_BATCH, 6, generator=source)
    truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5], [0.0], [-1.0]])
    return x, x @ truth + 0.01 * torch.randn(_BATCH, 1, generator=source)


def _model(device: torch.device, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)).to(device)


def _training(checks: Checks, group: RankGroup) -> list[float]:
    """Train models that differ at first, on different data: only DDP makes them equal."""
    model = _model(group.device, seed=group.rank)
    shared = DistributedDataParallel(model)
    expect_equal_models(group, model, "before the first step")
    x, y = (values.to(group.device) for values in _data(group.rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(_STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(shared(x), y)
        loss.backward()
        if step == 0:
            _expect_mean_gradients(group, model)
        optimizer.step()
        losses.append(loss.item())
    with group.judging():
        expect_on(loss.detach(), group.device)
    checks.figures["parameters"] = expect_equal_models(group, model, "after training")
    _expect_like_one_process(group, model)
    of_ranks = group.gather(losses, list[float])
    expect({len(each) for each in of_ranks} == {_STEPS}, f"a rank took another number of steps than {_STEPS}")
    means = [sum(values) / group.size for values in zip(*of_ranks, strict=True)]
    expect(means[-1] < means[0] / 2, f"the mean loss went from {means[0]:.4g} to {means[-1]:.4g}, not to a half")
    return [means[0], means[-1]]


def _expect_mean_gradients(group: RankGroup, model: nn.Module) -> None:
    """Check that each rank's gradient is the mean of the gradients on all ranks' data."""
    alone = _model(group.device, seed=0)
    total: list[torch.Tensor] = [torch.zeros_like(parameter) for parameter in alone.parameters()]
    for rank in range(group.size):
        x, y = (values.to(group.device) for values in _data(rank))
        gradients = torch.autograd.grad(nn.functional.mse_loss(alone(x), y), list(alone.parameters()))
        total = [one + gradient for one, gradient in zip(total, gradients, strict=True)]
    with group.judging():
        for expected, parameter in zip(total, model.parameters(), strict=True):
            assert parameter.grad is not None
            mean = (expected / group.size).double().reshape(-1).tolist()
            expect_close(parameter.grad, mean, 1e-5 * (1 + max(map(abs, mean))))


def _expect_like_one_process(group: RankGroup, model: nn.Module) -> None:
    """Compare with a model that is trained in one process on the data of all ranks: only the order of sums differs."""
    alone = _model(group.device, seed=0)
    parts = [_data(rank) for rank in range(group.size)]
    x, y = (torch.cat(values).to(group.device) for values in zip(*parts, strict=True))
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(alone(x), y).backward()
        optimizer.step()
    with group.judging():
        for expected, value in zip(alone.parameters(), model.parameters(), strict=True):
            expect_close(value, expected.detach().double().reshape(-1).tolist(), 1e-3)
