"""Whether one of two images is slower, from interleaved runs on one machine. Pure functions of numbers.

A run is told by the median of its batches' times. Four runs are a round: A B B A. The difference of a round is the mean
logarithm of B's times less that of A's: whatever grows evenly over a round, as heat does, is in both alike and cancels.
What is left is estimated by the median of the rounds, with a percentile bootstrap interval (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, chapter 13) over whole rounds, as batches of one run are not independent. Of few
rounds that would be too narrow. Their interval is the range of all, which holds the median of n independent values with
the probability 1 - 2^(1 - n): all of them lie on one side of it as often as n coins fall alike.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["faster", "slower", "same", "too noisy"]
SAMPLES = 2000  # of the bootstrap: the ends of a 95% interval are then found to about 0.5% of its rank
LEVEL = 0.95
FEW = 8  # values of which the next-narrower interval, without the least and the most, is below `LEVEL`: sign test


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with the interval that holds it with the probability `LEVEL`; of fewer than 6 values with less."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Round:
    """Medians, in seconds, of the four runs A B B A; of A alone, A A A A, the inner two stand for B."""

    a: tuple[float, float]
    b: tuple[float, float]

    @property
    def difference(self) -> float:
        """The logarithm of B's time as a multiple of A's: 0 for equal ones, about 0.1 where B takes 10% longer."""
        return sum(map(math.log, self.b)) / 2 - sum(map(math.log, self.a)) / 2


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is known of B against A. ``difference`` and ``noise`` are parts of A's time: 0.1 is 10% longer.

    ``noise`` is how far A seems to differ from itself.
    """

    verdict: Verdict
    difference: Interval
    noise: float
    a: Interval
    b: Interval


def median_of(values: Sequence[float], *, seed: int) -> Interval:
    """The median with its interval; the same for the same seed. ``values`` are one or more."""
    if len(values) <= FEW:
        return Interval(value=statistics.median(values), low=min(values), high=max(values))
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(SAMPLES))
    tail = (1 - LEVEL) / 2
    low, high = medians[math.floor(tail * (SAMPLES - 1))], medians[math.ceil((1 - tail) * (SAMPLES - 1))]
    return Interval(value=statistics.median(values), low=low, high=high)


def noise_of(alone: Sequence[Round], *, seed: int) -> float:
    """The farther end of the interval of A's difference from itself, as a part of A's time."""
    interval = median_of([each.difference for each in alone], seed=seed)
    return max(abs(math.expm1(interval.low)), abs(math.expm1(interval.high)))


def judge(alone: Sequence[Round], rounds: Sequence[Round], *, threshold: float, seed: int) -> Judgement:
    """B against A. ``alone`` are rounds of A with itself, ``threshold`` is the least difference that counts.

    A difference is one where it reaches the threshold and all of its interval is beyond the noise. The two are the same
    where the interval is within the threshold, and the noise too. Everything else cannot be told on this machine.
    """
    logarithm = median_of([each.difference for each in rounds], seed=seed)
    difference = Interval(
        value=math.expm1(logarithm.value), low=math.expm1(logarithm.low), high=math.expm1(logarithm.high)
    )  # fmt: skip
    noise = noise_of(alone, seed=seed)
    return Judgement(
        verdict=_verdict(difference, noise, threshold),
        difference=difference,
        noise=noise,
        a=median_of([time for each in rounds for time in each.a], seed=seed),
        b=median_of([time for each in rounds for time in each.b], seed=seed),
    )


def _verdict(difference: Interval, noise: float, threshold: float) -> Verdict:
    if difference.value >= threshold and difference.low > noise:
        return "slower"
    if difference.value <= -threshold and difference.high < -noise:
        return "faster"
    within = -threshold < difference.low and difference.high < threshold
    return "same" if within and noise < threshold else "too noisy"
