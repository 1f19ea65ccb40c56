"""The figures of a row of times."""

import math
from collections.abc import Sequence
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
    """Of each batch the time of the rank that took longest: a batch of a job is done when all have theirs."""
    return [max(times) for times in zip(*ranks, strict=True)]
