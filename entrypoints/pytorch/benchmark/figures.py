"""The figures of a row of times."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean, median, pstdev

_PERCENTILES = (5, 95, 99)


def summary(times: Sequence[float]) -> dict[str, float]:
    """Mean, median, standard deviation of all (not of a sample), least, most, and percentiles, in the unit of times."""
    ordered = sorted(times)
    figures = {
        "mean": fmean(ordered), "median": median(ordered), "std": pstdev(ordered), "min": ordered[0], "max": ordered[-1]
    }  # fmt: skip
    return figures | {f"p{percent}": percentile(ordered, percent) for percent in _PERCENTILES}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of times in ascending order, linear between the two nearest: numpy's default, Hyndman and Fan's seventh.

    Source: R. J. Hyndman, Y. Fan, Sample Quantiles in Statistical Packages, The American Statistician 50 (1996) 4.
    """
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def slowest(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Of each batch the most that a rank took."""
    return [max(times) for times in zip(*ranks, strict=True)]


def together(ranks: Sequence[Sequence[float]]) -> list[float]:
    """Seconds of each batch of a job whose ranks began at one moment: one ends when the last rank has ended its own.

    Their sum is what the job took. Ranks that do not wait for each other make up for a slow batch with a fast one; the
    sum of each batch's `slowest` would be longer than what any of them took.
    """
    if len(ranks) == 1:
        return list(ranks[0])  # as measured, without a rounding
    ends = [max(moments) for moments in zip(*map(accumulate, ranks), strict=True)]
    return [end - before for before, end in pairwise([0.0, *ends])]
