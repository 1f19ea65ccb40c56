"""The work on a batch: a step of training, or a forward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from . import zoo
from .ranks import RankInfo

Batch = tuple[torch.Tensor, torch.Tensor]

# As in other benchmark suites; the quality of training is not measured.
_SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}


def make_model(entry: zoo.ModelEntry, ranks: RankInfo, dtype: torch.dtype) -> torch.nn.Module:
    """Make the model of ``dtype`` on this rank's device, without communication between ranks."""
    torch.manual_seed(ranks.rank)
    return entry.make().to(device=ranks.device, dtype=dtype)


def make_step(
    entry: zoo.ModelEntry, model: torch.nn.Module, ranks: RankInfo, *, forward_only: bool
) -> Callable[[Batch], None]:
    """Return the function that computes a batch; on a GPU it does not wait for the result.

    Ranks that train average their gradients in each step (DDP). Ranks that infer do not communicate.
    """
    if not forward_only:
        return _training(entry, model.train(), ranks)
    model.eval()

    def step(batch: Batch) -> None:
        with torch.inference_mode():
            model(batch[0])

    return step


def _training(entry: zoo.ModelEntry, model: torch.nn.Module, ranks: RankInfo) -> Callable[[Batch], None]:
    trained: Any = model
    if ranks.many:
        trained = DistributedDataParallel(model, device_ids=[ranks.device] if ranks.device.type == "cuda" else None)
    criterion = zoo.loss(entry)
    optimizer = torch.optim.SGD(model.parameters(), **_SGD)

    def step(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(trained(batch[0]), batch[1]).backward()
        optimizer.step()

    return step
