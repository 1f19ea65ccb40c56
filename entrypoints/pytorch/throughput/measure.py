"""One measurement, from the choice of the device to the figures of all ranks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch

from ..payloads.verdict import Tell
from . import machine, nvml, zoo
from .combine import RankReport, combine, expect_all_batches
from .data import samples
from .failure import lacks_memory, reason_of
from .flags import BenchSettings
from .loop import Batch, Clock, EventClock, HostClock, Laps, run
from .ranks import RankInfo, open_ranks
from .work import make_model, make_step

# The size of a rank's results: ten samples of a GPU's power a second for three days, and two times of each batch.
_POWER_BYTES = 64 << 20
_BATCH_BYTES = 64


def measure(settings: BenchSettings, tell: Tell) -> dict[str, Any]:
    """Measure, and return the figures of the JSON object; ``tell`` the parent process the UUID of the GPU."""
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    with open_ranks(settings.device, settings.dist_backend) as ranks:
        on_gpu = ranks.device.type == "cuda"
        if on_gpu:
            tell({"gpu": _uuid(ranks.device)})
        entry, batches, model = _prepare(settings, ranks)
        _say_plan(settings, ranks, entry)
        step: Callable[[Batch], None] = lambda _: None  # noqa: E731 - without a model only the loader is measured
        if model:
            step = make_step(entry, model, ranks, forward_only=settings.forward_only)
        computes = ranks.device.type if model else "cpu"
        warm = _run(batches, step, ranks, settings.num_warmup_batches, what="warm-up batches", computes=computes)
        with nvml.watching(_uuid(ranks.device)) if on_gpu else nullcontext(nvml.Watch()) as watch:
            laps = _run(batches, step, ranks, settings.num_batches, what="batches", computes=computes)
        most = _POWER_BYTES + _BATCH_BYTES * (settings.num_warmup_batches + settings.num_batches)
        status = ranks.gather(_report(settings, ranks, warm, laps, watch), RankReport, most_bytes=most)
    expect_all_batches(settings, status)
    return {
        "model_title": entry.title,
        "parameters": zoo.parameters_of(entry, model) if model else None,
        "input": list(entry.input),
        "classes": entry.classes,
        **combine(settings, status),
        "versions": machine.versions(),
        "host": machine.host(),
    }


def _prepare(
    settings: BenchSettings, ranks: RankInfo
) -> tuple[zoo.ModelEntry, Iterator[Batch], torch.nn.Module | None]:
    """Load the model's entry, the batches and the model (None if only the loader is measured).

    If that fails on one rank, all ranks end with that rank's reason.
    """
    reason, lacking = "", False
    try:
        entry = zoo.load(settings.model)
        dtype: torch.dtype = getattr(torch, settings.dtype)
        batches = samples.open_batches(settings, entry, ranks, dtype)
        model = None if settings.data_loader_only else make_model(entry, ranks, dtype)
    except Exception as error:
        lacking = lacks_memory(error)
        reason = reason_of(error, batch_size=settings.batch_size, dtype=settings.dtype, device=settings.device)
        if not reason:
            raise
    ranks.agree(reason, out_of_memory=lacking)  # it raises if this rank has a reason
    return entry, batches, model


def _run(
    batches: Iterator[Batch], step: Callable[[Batch], None], ranks: RankInfo, count: int, *, what: str, computes: str
) -> Laps:
    if not count:
        return Laps(times=[], data_times=[])
    on_gpu = computes == "cuda"
    clock: Clock = EventClock(lambda: torch.cuda.Event(enable_timing=True)) if on_gpu else HostClock()

    def wait() -> None:
        ranks.wait()
        if on_gpu:
            torch.cuda.synchronize(ranks.device)

    return run(clock, batches, step, count, what=what if ranks.rank == 0 else "", wait=wait)


def _uuid(device: torch.device) -> str:
    """Return the UUID of a GPU in the form of NVIDIA's management library."""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _report(settings: BenchSettings, ranks: RankInfo, warm: Laps, laps: Laps, watch: nvml.Watch) -> RankReport:
    on_gpu = ranks.device.type == "cuda"
    return RankReport(
        name=torch.cuda.get_device_name(ranks.device) if on_gpu else machine.cpu_name(),
        warm=warm,
        laps=laps,
        peak_rss=machine.peak_rss(),
        peak_gpu=torch.cuda.max_memory_allocated(ranks.device) if on_gpu else None,
        watch=watch,
        on_cpu=tuple(filter(None, (machine.too_many_threads(ranks.local), machine.slow_type(settings.dtype)))),
    )


def _say_plan(settings: BenchSettings, ranks: RankInfo, entry: zoo.ModelEntry) -> None:
    if ranks.rank:
        return
    where = f"{ranks.size} x {settings.device}" if ranks.many else settings.device
    print(
        f"bench: {entry.title}, {settings.phase}, {settings.num_batches} batches of {settings.batch_size} in "
        f"{settings.dtype} on {where}, samples: {settings.backend}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    if settings.device == "cpu" and (slow := machine.slow_type(settings.dtype)):
        print(f"bench: note: {slow}", file=sys.stderr, flush=True)  # before the first batch, which may take minutes
