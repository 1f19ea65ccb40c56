"""Checks that DataLoader's workers return every sample once, use shared memory, and report a dead worker."""

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from .device import expect_on, facts, open_device
from .verdict import Checks, NotRun, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_COUNT = 96
_BIG_MB = 16
_SECONDS = 60


def check(checks: Checks, options: "PayloadOptions") -> None:
    device = open_device(options.device)
    checks.figures["shm-mb"] = shutil.disk_usage("/dev/shm").total // 2**20  # workers pass samples through it
    with checks("workers"):
        _every_sample_once(DataLoader(_Squares(), batch_size=8, num_workers=2, timeout=_SECONDS))
    with checks("shuffle"):
        _shuffle()
    with checks("spawn"):
        spawn = {"multiprocessing_context": "spawn", "timeout": _SECONDS}
        _every_sample_once(DataLoader(_Squares(), batch_size=16, num_workers=1, **spawn))
    with checks("shared-memory"):
        _shared(checks)
    with checks("dead-worker"):
        _dead_worker()
    with checks("pinned"):
        _pin(device)
    checks.figures |= facts(device)


class _Squares(Dataset[dict[str, Any]]):
    """Sample k is k, its square, and the id of the process that made it."""

    def __len__(self) -> int:
        return _COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([index, index * index]), "process": os.getpid()}


class _Big(Dataset[torch.Tensor]):
    """Samples of 16 MB that the parent can recompute."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(_BIG_MB * 2**18, dtype=torch.int32) * (index + 1)


class _Deadly(Dataset[int]):
    """Kills the worker that asks for the first sample, as a lack of memory would."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return index


def _every_sample_once(loader: "DataLoader[dict[str, Any]]") -> None:
    numbers: list[int] = []
    makers: set[int] = set()
    for batch in loader:
        numbers += batch["x"][:, 0].tolist()
        makers |= set(batch["process"].tolist())
        expect(bool((batch["x"][:, 1] == batch["x"][:, 0] ** 2).all()), "a sample is not what the worker made")
    expect(numbers == list(range(_COUNT)), "samples are missing, doubled, or out of order")
    expect(os.getpid() not in makers, "samples were made in the parent, not in workers")
    expected = loader.num_workers
    expect(len(makers) == expected, f"{len(makers)} workers made the samples, not {expected}")


def _shuffle() -> None:
    orders = []
    for seed in (1, 1, 2):
        loader = DataLoader(
            _Squares(), batch_size=8, shuffle=True, num_workers=2, timeout=_SECONDS,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        orders.append([int(value) for batch in loader for value in batch["x"][:, 0]])
    expect(sorted(orders[0]) == list(range(_COUNT)), "a shuffled epoch has not every sample once")
    expect(orders[0] == orders[1] and orders[0] != orders[2], "the order does not follow the seed")


def _shared(checks: Checks) -> None:
    """Check that large samples come through /dev/shm without a copy."""
    for index, sample in enumerate(DataLoader(_Big(), batch_size=None, num_workers=1, timeout=_SECONDS)):
        expect(sample.is_shared(), "the tensor of a worker is not in shared memory")
        expected = torch.arange(_BIG_MB * 2**18, dtype=torch.int32) * (index + 1)
        expect(torch.equal(sample, expected), "the tensor came changed out of shared memory")
    checks.figures["shared-mb"] = 2 * _BIG_MB


def _dead_worker() -> None:
    try:
        for _ in DataLoader(_Deadly(), num_workers=1, timeout=_SECONDS):
            pass
    except RuntimeError as error:
        expect("DataLoader worker" in str(error), f"a killed worker was reported as: {error}")
        return
    expect(False, "a worker was killed, and the loader did not report it")


def _pin(device: torch.device) -> None:
    """Check that pinned batches arrive complete on the GPU when they are copied without waiting."""
    if device.type != "cuda":
        raise NotRun("pinned memory is for copies to a GPU, and this is the cpu")
    loader = DataLoader(_Squares(), batch_size=8, num_workers=2, pin_memory=True, timeout=_SECONDS)
    numbers: list[int] = []
    for batch in loader:
        expect(batch["x"].is_pinned(), "pin_memory=True gave memory that is not pinned")
        numbers += expect_on(batch["x"].to(device, non_blocking=True), device)[:, 0].tolist()
    expect(numbers == list(range(_COUNT)), "samples changed on their way to the GPU")
