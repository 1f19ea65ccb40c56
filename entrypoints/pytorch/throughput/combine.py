"""The figures of all ranks together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median, pstdev
from typing import Any

from .failure import Failure
from .flags import BenchSettings
from .loop import Laps
from .nvml import Watch

_PREFETCHED = 2  # batches that each worker loads ahead (DataLoader's default)
_BOUND = 0.1  # the share of waiting for samples above which loading bounds a run
_PERCENTILES = (5, 95, 99)


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """The results of one rank: its device's name, its laps, its memory in bytes, and notes on its CPU."""

    name: str
    warm: Laps
    laps: Laps
    peak_rss: int
    peak_gpu: int | None
    watch: Watch
    on_cpu: tuple[str, ...] = ()


def expect_all_batches(settings: BenchSettings, ranks: Sequence[RankReport]) -> None:
    """Raise Failure if a rank did not send a time for each batch."""
    for rank, status in enumerate(ranks):
        for laps, count in ((status.warm, settings.num_warmup_batches), (status.laps, settings.num_batches)):
            rows = (laps.times, laps.data_times)
            if any(len(row) != count or not all(0 <= time < math.inf for time in row) for row in rows):
                raise Failure(
                    f"Rank {rank} did not send the times of {count} batches: start the same command of one image "
                    "as every rank."
                )


def combine(settings: BenchSettings, ranks: Sequence[RankReport]) -> dict[str, Any]:
    """Return the figures of the JSON object.

    A batch ends when the last rank has ended its part. The memory is that of the rank with the most. ``bound`` is true
    if batches waited more than a tenth of their time for samples.
    """
    times, waits = (
        together([status.laps.times for status in ranks]),
        slowest([status.laps.data_times for status in ranks]),
    )
    waited = min(1.0, sum(waits) / sum(times))  # ranks that infer may wait at different moments
    bound = bool(settings.data_dir) and not settings.data_loader_only and waited > _BOUND
    effective = settings.batch_size * len(ranks)
    watches = [status.watch for status in ranks]
    return {
        "effective_batch": effective,
        "devices": [status.name for status in ranks],
        "world": len(ranks),
        "data": {
            "backend": settings.backend,
            "loader_threads": settings.num_loader_threads,
            "shuffle": settings.data_shuffle,
            "bound": bound,
        },
        "times": times,
        "data_times": waits,
        "warmup_times": together([status.warm.times for status in ranks]),
        "time": summary(times),
        "throughput": effective * len(times) / sum(times),
        "memory": {
            "peak_rss_bytes": max(status.peak_rss for status in ranks),
            "peak_gpu_bytes": max((status.peak_gpu for status in ranks if status.peak_gpu is not None), default=None),
        },
        "power": power_of(watches),
        "clocks": clocks_of(watches),
        "notes": _notes(settings, ranks, waited if bound else 0.0),
    }


def power_of(watches: Sequence[Watch]) -> dict[str, float] | None:
    """Return the mean watts of all devices together, and the sum of their maxima; None if one is unknown."""
    if not all(watch.watts for watch in watches):
        return None
    return {
        "mean_watts": sum(sum(watch.watts) / len(watch.watts) for watch in watches),
        "max_watts": sum(max(watch.watts) for watch in watches),
    }


def clocks_of(watches: Sequence[Watch]) -> dict[str, Any] | None:
    """Return the MHz of the slowest device at the start and the end, and all reasons of throttling."""
    if not all(len(watch.clocks) == 2 for watch in watches):
        return None
    start, end = (min(watch.clocks[place] for watch in watches) for place in (0, 1))
    return {"start_mhz": start, "end_mhz": end, "throttled": _slowdowns(watches)}


def _slowdowns(watches: Sequence[Watch]) -> list[str]:
    return sorted({reason for watch in watches for reason in watch.reasons})


def _notes(settings: BenchSettings, ranks: Sequence[RankReport], waited: float) -> list[str]:
    watches = [status.watch for status in ranks]
    notes = [note for status in ranks for note in status.on_cpu] if settings.device == "cpu" else []
    notes += [f"The GPU's {what} could not be read: {why}." for watch in watches for what, why in watch.missing.items()]
    if slowed := _slowdowns(watches):
        notes.append(f"The GPU was slowed down: {', '.join(slowed)}.")
    if waited:
        notes.append(
            f"Loading bound this run: batches waited {waited:.0%} of their time for samples. Raise "
            "--num_loader_threads where cores are free, or put the images on a faster disk."
        )
    ahead = settings.num_loader_threads * _PREFETCHED
    if settings.data_dir and settings.num_batches <= ahead:
        notes.append(f"The first {ahead} batches may have been loaded ahead: measure more to see what loading costs.")
    return list(dict.fromkeys(filter(None, notes)))


def summary(times: Sequence[float]) -> dict[str, float]:
    """Return mean, median, standard deviation of all (not of a sample), minimum, maximum and percentiles."""
    ordered = sorted(times)
    figures = {
        "mean": fmean(ordered), "median": median(ordered), "std": pstdev(ordered), "min": ordered[0], "max": ordered[-1]
    }  # fmt: skip
    return figures | {f"p{percent}": percentile(ordered, percent) for percent in _PERCENTILES}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of ascending times, linear between the two nearest: numpy's default.

    Source: R. J. Hyndman, Y. Fan, Sample Quantiles in Statistical Packages, The American Statistician 50 (1996) 4,
    definition 7.
    """
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def slowest(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Return the largest time of each batch among the ranks."""
    return [max(times) for times in zip(*ranks, strict=True)]


def together(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Return the seconds of each batch of a job, whose ranks start together and which ends a batch with the last rank.

    Their sum is the time of the job. The sum of each batch's `slowest` could be longer, as ranks that do not wait for
    each other make up for a slow batch with a fast one.
    """
    if len(ranks) == 1:
        return list(ranks[0])  # without rounding
    ends = [max(moments) for moments in zip(*map(accumulate, ranks), strict=True)]
    return [end - before for before, end in pairwise([0.0, *ends])]
