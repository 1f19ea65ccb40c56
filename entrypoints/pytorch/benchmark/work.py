"""What is done with a batch: a step of training, or a forward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from . import zoo
from .ranks import Ranks

Batch = tuple[torch.Tensor, torch.Tensor]

# As the field's suites train; how well it learns is not measured.
_SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}


def make_model(entry: zoo.Entry, ranks: Ranks, dtype: torch.dtype) -> torch.nn.Module:
    """Of ``dtype``, on this rank's device; no rank speaks to another meanwhile."""
    torch.manual_seed(ranks.rank)
    return entry.make().to(device=ranks.device, dtype=dtype)


def make_step(entry: zoo.Entry, model: torch.nn.Module, ranks: Ranks, *, forward_only: bool) -> Callable[[Batch], None]:
    """What computes a batch; it returns nothing and, on a GPU, does not wait.

    Ranks that train together average their gradients (DDP), and make their steps together; ranks that infer need not
    speak to each other.
    """
    return _forward(model.eval()) if forward_only else _training(entry, model.train(), ranks)


def _forward(model: torch.nn.Module) -> Callable[[Batch], None]:
    def step(batch: Batch) -> None:
        with torch.inference_mode():
            model(batch[0])

    return step


def _training(entry: zoo.Entry, model: torch.nn.Module, ranks: Ranks) -> Callable[[Batch], None]:
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
