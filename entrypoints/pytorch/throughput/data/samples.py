"""The endless batches of a measurement: one repeated synthetic batch, or images from a loader."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Sampler

from .. import zoo
from ..failure import Failure
from ..flags import BenchSettings
from ..ranks import RankInfo
from .caffe_lmdb import CaffeLmdb
from .image_folder import ImageFolder
from .pixels import SampleSpec

Batch = tuple[torch.Tensor, torch.Tensor]

_SEED = 0  # all ranks must shuffle alike


def open_batches(
    settings: BenchSettings, entry: zoo.ModelEntry, ranks: RankInfo, dtype: torch.dtype
) -> Iterator[Batch]:
    """Return batches on the rank's device, of the model's type. Raises Failure if images cannot be read."""
    if not settings.data_dir:
        return _synthetic(settings, entry, ranks.device, dtype)
    folder = Path(settings.data_dir)
    if not folder.is_dir():
        raise Failure(f"There is no folder {folder} (--data_dir): mount it, or correct its path.")
    if entry.kind != "values" or len(entry.input) != 3 or entry.input[0] != 3:
        raise Failure(f"{entry.title} takes {entry.input} and no colour images: leave --data_dir out.")
    height, width = entry.input[1:]
    sample_spec = SampleSpec(size=(height, width), classes=entry.classes, training=not settings.forward_only)
    try:
        dataset = (ImageFolder if settings.data_backend == "image_folder" else CaffeLmdb)(folder, sample_spec)
    except OSError as error:
        raise Failure(f"{error.filename or folder} cannot be read ({error.strerror}): correct its rights.") from None
    loader: DataLoader[Batch] = DataLoader(
        dataset,
        batch_size=settings.batch_size,
        sampler=Endless(len(dataset), ranks.rank, ranks.size, shuffle=settings.data_shuffle),
        num_workers=settings.num_loader_threads,
        pin_memory=ranks.device.type == "cuda",
    )
    return iter(loader) if settings.data_loader_only else _move(loader, ranks.device, dtype)


def _synthetic(
    settings: BenchSettings, entry: zoo.ModelEntry, device: torch.device, dtype: torch.dtype
) -> Iterator[Batch]:
    """Repeat a synthetic batch on the device, or copy it from host memory each time."""
    copied = settings.in_host_memory and device.type == "cuda"
    inputs, targets = zoo.batch(entry, settings.batch_size, "cpu" if copied else device, dtype)
    if not copied:
        return itertools.repeat((inputs, targets))
    if settings.data == "synthetic/pinned":
        inputs, targets = inputs.pin_memory(), targets.pin_memory()
    return _move(itertools.repeat((inputs, targets)), device, inputs.dtype)


def _move(batches: Iterable[Batch], device: torch.device, dtype: torch.dtype) -> Iterator[Batch]:
    for inputs, targets in batches:
        yield inputs.to(device, dtype, non_blocking=True), targets.to(device, non_blocking=True)


class Endless(Sampler[int]):
    """This rank's share of the numbers of all images, round after round without an end."""

    def __init__(self, count: int, rank: int, ranks: int, *, shuffle: bool) -> None:
        self._count, self._rank, self._ranks, self._shuffle = count, rank, ranks, shuffle

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(_SEED)
        rounds = (
            torch.randperm(self._count, generator=generator).tolist() if self._shuffle else range(self._count)
            for _ in itertools.count()
        )
        return itertools.islice(itertools.chain.from_iterable(rounds), self._rank, None, self._ranks)
