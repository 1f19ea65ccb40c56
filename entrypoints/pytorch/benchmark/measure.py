"""One measurement, from the device to the figures of all ranks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from . import figures, machine, nvml, zoo
from .data import samples
from .failure import reason_of
from .flags import Settings
from .loop import Batch, Clock, EventClock, HostClock, Laps, run
from .ranks import Ranks, open_ranks
from .work import make_step, parameters_of

_PREFETCHED = 2  # batches that each worker loads ahead; DataLoader's default
_BOUND = 0.1  # of its time that a batch waits for samples, from which on a run is bound by loading them


@dataclass(frozen=True, kw_only=True)
class Ready:
    """All that a measurement needs."""

    entry: zoo.Entry
    step: Callable[[Batch], None]
    batches: Iterator[Batch]


def measure(settings: Settings) -> dict[str, Any]:
    """What was measured, as the JSON object has it, on every rank. Raises what makes it impossible."""
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    with open_ranks(settings.device) as ranks:
        ready = _all_ready(settings, ranks)
        _say_plan(settings, ranks, ready.entry)
        warm = _run(ready, ranks, settings.num_warmup_batches, "warm-up batches")
        with _watching(ranks.device) as watch:
            laps = _run(ready, ranks, settings.num_batches, "batches")
        seen = ranks.gather(_seen(ranks, warm, laps, watch))
    return _together(settings, ready.entry, seen)


def _all_ready(settings: Settings, ranks: Ranks) -> Ready:
    """What one rank lacks ends all of them, with that rank's reason."""
    reason, ready = "", None
    try:
        ready = _ready(settings, ranks)
    except Exception as error:
        reason = reason_of(error, batch_size=settings.batch_size, dtype=settings.dtype, device=settings.device)
        if not reason:
            raise
    ranks.agree(reason)
    assert ready is not None
    return ready


def _ready(settings: Settings, ranks: Ranks) -> Ready:
    entry = zoo.load(settings.model)
    dtype: torch.dtype = getattr(torch, settings.dtype)
    batches = samples.open_batches(settings, entry, ranks, dtype)
    return Ready(
        entry=entry, batches=batches, step=make_step(entry, ranks, dtype, forward_only=settings.forward_only)
    )


def _run(ready: Ready, ranks: Ranks, count: int, what: str) -> Laps:
    if not count:
        return Laps(times=[], data_times=[])
    on_gpu = ranks.device.type == "cuda"
    clock: Clock = EventClock(lambda: torch.cuda.Event(enable_timing=True)) if on_gpu else HostClock()
    ranks.wait()
    if on_gpu:
        torch.cuda.synchronize(ranks.device)
    return run(clock, ready.batches, ready.step, count, what if ranks.rank == 0 else "")


def _watching(device: torch.device) -> AbstractContextManager[nvml.Watch]:
    if device.type != "cuda":
        return nullcontext(nvml.Watch())
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return nvml.watching(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")


def _seen(ranks: Ranks, warm: Laps, laps: Laps, watch: nvml.Watch) -> dict[str, Any]:
    """What this rank alone knows."""
    on_gpu = ranks.device.type == "cuda"
    return {
        "name": torch.cuda.get_device_name(ranks.device) if on_gpu else machine.cpu_name(),
        "times": laps.times,
        "data_times": laps.data_times,
        "warmup_times": warm.times,
        "rss": machine.peak_rss(),
        "gpu": torch.cuda.max_memory_allocated(ranks.device) if on_gpu else None,
        "watch": vars(watch),
        "threads": machine.too_many_threads(ranks.local),
    }


def _together(settings: Settings, entry: zoo.Entry, seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all ranks: a batch is done when the slowest has done its part; memory is that of the one that took most."""
    times, waits = (figures.slowest([rank[name] for rank in seen]) for name in ("times", "data_times"))
    effective = settings.batch_size * len(seen)
    watches = [nvml.Watch(**rank["watch"]) for rank in seen]
    bound = bool(settings.data_dir) and sum(waits) > _BOUND * sum(times)
    return {
        "model_title": entry.title,
        "parameters": parameters_of(entry),
        "input": list(entry.input),
        "classes": entry.classes,
        "effective_batch": effective,
        "devices": [rank["name"] for rank in seen],
        "world": len(seen),
        "data": {
            "backend": settings.backend, "loader_threads": settings.num_loader_threads,
            "shuffle": settings.data_shuffle, "bound": bound,
        },
        "times": times,
        "data_times": waits,
        "warmup_times": figures.slowest([rank["warmup_times"] for rank in seen]),
        "time": figures.summary(times),
        "throughput": effective / (sum(times) / len(times)),
        "memory": {
            "peak_rss_bytes": max(rank["rss"] for rank in seen),
            "peak_gpu_bytes": max((rank["gpu"] for rank in seen if rank["gpu"] is not None), default=None),
        },
        "power": power_of(watches),
        "clocks": clocks_of(watches),
        "notes": _notes(settings, seen, watches, sum(waits) / sum(times) if bound else 0.0),
        "versions": machine.versions(),
        "host": machine.host(),
    }  # fmt: skip


def _notes(
    settings: Settings, seen: list[dict[str, Any]], watches: list[nvml.Watch], waited: float
) -> list[str]:
    found = [rank["threads"] for rank in seen] if settings.device == "cpu" else []
    found += [f"Power and clocks are not known: {watch.missing}." for watch in watches if watch.missing]
    if reasons := sorted(set().union(*(watch.reasons for watch in watches))):
        found.append(f"The GPU was slowed down: {', '.join(reasons)}.")
    if waited:
        found.append(
            f"Loading bound this run: batches waited {waited:.0%} of their time for samples. Raise "
            "--num_loader_threads where cores are free, or put the images on a faster disk."
        )
    if settings.data_dir and settings.num_batches <= (ahead := settings.num_loader_threads * _PREFETCHED):
        found.append(f"The first {ahead} batches can have been loaded ahead: measure more, to see what loading costs.")
    return list(dict.fromkeys(filter(None, found)))


def power_of(watches: list[nvml.Watch]) -> dict[str, float] | None:
    """Watts of all devices together: the mean, and the sum of the most of each."""
    if not all(watch.watts for watch in watches):
        return None
    return {
        "mean_watts": sum(sum(watch.watts) / len(watch.watts) for watch in watches),
        "max_watts": sum(max(watch.watts) for watch in watches),
    }


def clocks_of(watches: list[nvml.Watch]) -> dict[str, Any] | None:
    """MHz of the slowest device at the start and the end, and every reason for which one was slowed down."""
    if not all(len(watch.clocks) == 2 for watch in watches):
        return None
    start, end = (min(watch.clocks[place] for watch in watches) for place in (0, 1))
    throttled = sorted(set().union(*(watch.reasons for watch in watches)))
    return {"start_mhz": start, "end_mhz": end, "throttled": throttled}


def _say_plan(settings: Settings, ranks: Ranks, entry: zoo.Entry) -> None:
    if ranks.rank:
        return
    where = f"{ranks.size} x {settings.device}" if ranks.many else settings.device
    print(
        f"bench: {entry.title}, {settings.phase}, {settings.num_batches} batches of {settings.batch_size} in "
        f"{settings.dtype} on {where}, samples: {settings.backend}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
