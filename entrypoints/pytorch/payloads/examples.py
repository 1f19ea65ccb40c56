"""Trains two typical models on one or many ranks: a classifier of digits, and a regression.

The data are generated, so that nothing is downloaded.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from .device import expect_on, facts
from .group import RankGroup, expect_equal_models, open_group
from .verdict import Checks, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_BATCH = 32  # of each rank
_TRAINED_ON = 1536  # samples of all ranks together
_JUDGED_ON = 512

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check(checks: Checks, options: "PayloadOptions") -> None:
    with open_group(checks, options.device, options.turn) as group:
        with checks("digits"):
            _digits(checks, group)
        with checks("regression"):
            _regression(checks, group)
        checks.figures |= facts(group.device)


def pictures(number: int, seed: int) -> TensorDataset:
    """Draw ``number`` pictures of 28 x 28 in ten classes: a pattern each, moved by up to two pixels, with noise."""
    patterns = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(0)).round()
    large = nn.functional.interpolate(patterns, scale_factor=4)
    source = torch.Generator().manual_seed(seed)
    classes = torch.randint(10, (number,), generator=source)
    moves = torch.randint(-2, 3, (number, 2), generator=source).tolist()
    moved = [torch.roll(large[kind], move, dims=(1, 2)) for kind, move in zip(classes.tolist(), moves, strict=True)]
    return TensorDataset(torch.stack(moved) + 0.3 * torch.randn(number, 1, 28, 28, generator=source), classes)


def curve(number: int, seed: int) -> TensorDataset:
    """Draw ``number`` points of sin(2x) + x/2, with noise of a twentieth."""
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(number, 1, generator=source) * 6 - 3
    return TensorDataset(x, torch.sin(2 * x) + x / 2 + 0.05 * torch.randn(number, 1, generator=source))


def _digits(checks: Checks, group: RankGroup) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 36, 10),
    )  # fmt: skip
    losses = _train(group, model, pictures(_TRAINED_ON, 1), nn.functional.cross_entropy, steps=60)
    x, classes = (values.to(group.device) for values in pictures(_JUDGED_ON, 2).tensors)
    with torch.no_grad():
        right = (model(x).argmax(1) == classes).float().mean().item()
    checks.figures |= {"digits-loss": losses, "digits-right": right}
    checks.figures["digits-parameters"] = expect_equal_models(group, model, "after training")
    expect(losses[1] < losses[0] / 2, f"the loss went from {losses[0]:.4g} to {losses[1]:.4g}, not to a half")
    expect(right > 0.9, f"{right:.0%} of {_JUDGED_ON} unseen pictures were recognised, not 90 %")


def _regression(checks: Checks, group: RankGroup) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    losses = _train(group, model, curve(_TRAINED_ON, 3), nn.functional.mse_loss, steps=250)
    x, y = (values.to(group.device) for values in curve(_JUDGED_ON, 4).tensors)
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x), y).item()
    checks.figures |= {"regression-loss": losses, "regression-error": error}
    checks.figures["regression-parameters"] = expect_equal_models(group, model, "after training")
    expect(losses[1] < losses[0] / 10, f"the loss went from {losses[0]:.4g} to {losses[1]:.4g}, not to a tenth")
    expect(error < 0.1, f"the mean square error on unseen points is {error:.3g}, not below 0.1")


def _train(group: RankGroup, model: nn.Module, data: TensorDataset, loss_of: Loss, *, steps: int) -> list[float]:
    """Train, and return the mean loss of all ranks in the first step and over the last tenth of the steps."""
    model.to(group.device)
    shared = DistributedDataParallel(model) if group.size > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    losses = []
    for x, y in islice(_batches(group, data), steps):
        optimizer.zero_grad()
        result = shared(x)
        loss = loss_of(result, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with group.judging():
        expect_on(result, group.device)
    last = losses[-steps // 10 :]
    of_ranks = group.gather((losses[0], sum(last) / len(last)), tuple[float, float])
    return [sum(values) / group.size for values in zip(*of_ranks, strict=True)]


def _batches(group: RankGroup, data: TensorDataset) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches without an end, so that any number of ranks takes the same number of steps."""
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, group.size, group.rank, seed=5)
    for epoch in count():
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=_BATCH, sampler=sampler):
            yield x.to(group.device), y.to(group.device)
