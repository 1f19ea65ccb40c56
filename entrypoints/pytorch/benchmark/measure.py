"""One measurement, from the device to the figures of all ranks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..payloads.verdict import Tell
from . import machine, nvml, zoo
from .combine import Seen, combined, expect_all_batches
from .data import samples
from .failure import lacks_memory, reason_of
from .flags import Settings
from .loop import Batch, Clock, EventClock, HostClock, Laps, run
from .ranks import Ranks, open_ranks
from .work import make_model, make_step

# Of what a rank sends to the others: ten samples of a GPU's power a second, for three days; two times of each batch.
_POWER_BYTES = 64 << 20
_BATCH_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What a rank needs before it speaks to others."""

    entry: zoo.Entry
    model: torch.nn.Module | None
    batches: Iterator[Batch]


def measure(settings: Settings, tell: Tell) -> dict[str, Any]:
    """Measure, and return the result as the JSON object has it; ``tell`` the parent the UUID of the GPU."""
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    with open_ranks(settings.device, settings.dist_backend) as ranks:
        if ranks.device.type == "cuda":
            tell({"gpu": _uuid(ranks.device)})
        ready = _all_ready(settings, ranks)
        _say_plan(settings, ranks, ready.entry)
        step = _step(settings, ready, ranks)
        computes = ranks.device.type if ready.model else "cpu"
        warm = _run(ready.batches, step, ranks, settings.num_warmup_batches, what="warm-up batches", computes=computes)
        with _watching(ranks.device) as watch:
            laps = _run(ready.batches, step, ranks, settings.num_batches, what="batches", computes=computes)
        most = _POWER_BYTES + _BATCH_BYTES * (settings.num_warmup_batches + settings.num_batches)
        seen = ranks.gather(_seen(settings, ranks, warm, laps, watch), Seen, most_bytes=most)
    expect_all_batches(settings, seen)
    entry = ready.entry
    return {
        "model_title": entry.title,
        "parameters": zoo.parameters_of(entry, ready.model) if ready.model else None,
        "input": list(entry.input),
        "classes": entry.classes,
        **combined(settings, seen),
        "versions": machine.versions(),
        "host": machine.host(),
    }


def _all_ready(settings: Settings, ranks: Ranks) -> Ready:
    """What one rank lacks ends all of them, with that rank's reason."""
    reason, lacking, ready = "", False, None
    try:
        ready = _ready(settings, ranks)
    except Exception as error:
        lacking = lacks_memory(error)
        reason = reason_of(error, batch_size=settings.batch_size, dtype=settings.dtype, device=settings.device)
        if not reason:
            raise
    ranks.agree(reason, out_of_memory=lacking)
    assert ready is not None
    return ready


def _ready(settings: Settings, ranks: Ranks) -> Ready:
    entry = zoo.load(settings.model)
    dtype: torch.dtype = getattr(torch, settings.dtype)
    batches = samples.open_batches(settings, entry, ranks, dtype)
    model = None if settings.data_loader_only else make_model(entry, ranks, dtype)
    return Ready(entry=entry, batches=batches, model=model)


def _step(settings: Settings, ready: Ready, ranks: Ranks) -> Callable[[Batch], None]:
    """Return the work on a batch; no work if the loader alone is measured."""
    if ready.model is None:
        return lambda _: None
    return make_step(ready.entry, ready.model, ranks, forward_only=settings.forward_only)


def _run(
    batches: Iterator[Batch], step: Callable[[Batch], None], ranks: Ranks, count: int, *, what: str, computes: str
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


def _watching(device: torch.device) -> AbstractContextManager[nvml.Watch]:
    if device.type != "cuda":
        return nullcontext(nvml.Watch())
    return nvml.watching(_uuid(device))


def _uuid(device: torch.device) -> str:
    """The UUID of a GPU, as NVIDIA's management library spells it."""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _seen(settings: Settings, ranks: Ranks, warm: Laps, laps: Laps, watch: nvml.Watch) -> Seen:
    on_gpu = ranks.device.type == "cuda"
    return Seen(
        name=torch.cuda.get_device_name(ranks.device) if on_gpu else machine.cpu_name(),
        warm=warm,
        laps=laps,
        peak_rss=machine.peak_rss(),
        peak_gpu=torch.cuda.max_memory_allocated(ranks.device) if on_gpu else None,
        watch=watch,
        on_cpu=tuple(filter(None, (machine.too_many_threads(ranks.local), machine.slow_type(settings.dtype)))),
    )


def _say_plan(settings: Settings, ranks: Ranks, entry: zoo.Entry) -> None:
    if ranks.rank:
        return
    where = f"{ranks.size} x {settings.device}" if ranks.many else settings.device
    print(
        f"bench: {entry.title}, {settings.phase}, {settings.num_batches} batches of {settings.batch_size} in "
        f"{settings.dtype} on {where}, samples: {settings.backend}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    if settings.device == "cpu" and (slow := machine.slow_type(settings.dtype)):
        print(f"bench: note: {slow}", file=sys.stderr, flush=True)  # now, as a first batch may take minutes
