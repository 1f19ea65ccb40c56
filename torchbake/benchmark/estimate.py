"""Statistics that decide if one of two images is slower, from interleaved runs on one machine. Pure.

The time of a run is the median of its batches' times. A round is four runs: A B B A. Its difference is the mean
logarithm of B's times minus that of A's. A drift that is linear over a round, such as heat, cancels. The estimate is
the median of the rounds. Its interval is a percentile bootstrap (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13) over whole rounds, as batches of one run are not independent. For few rounds a bootstrap
is too narrow, so the interval is their range. The range of n independent values contains the median with the
probability 1 - 2^(1 - n), as all n values are on one side of it as often as n coins fall alike.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["faster", "slower", "same", "too noisy"]
SAMPLES = 2000  # of the bootstrap: enough to find the ends of a 95% interval to about 0.5% of its rank
LEVEL = 0.95
FEW = 8  # up to so many values, the interval without the smallest and largest value is below `LEVEL` (sign test)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with its confidence interval at `LEVEL`; fewer than 6 values give a lower level."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Round:
    """Medians, in seconds, of the four runs A B B A. In a round of A alone, ``b`` has the two inner runs."""

    a: tuple[float, float]
    b: tuple[float, float]

    @property
    def difference(self) -> float:
        """The logarithm of B's time divided by A's: 0 if they are equal, about 0.1 if B takes 10% longer."""
        return sum(map(math.log, self.b)) / 2 - sum(map(math.log, self.a)) / 2


@dataclass(frozen=True, kw_only=True)
class SpeedEstimate:
    """B compared with A. ``difference`` and ``noise`` are fractions of A's time: 0.1 is 10% longer.

    ``noise`` is the measured difference of A from itself.
    """

    verdict: Verdict
    difference: Interval
    noise: float
    a: Interval
    b: Interval


def median_of(values: Sequence[float], *, seed: int) -> Interval:
    """Return the median of at least one value with its interval; equal seeds give equal results."""
    if len(values) <= FEW:
        return Interval(value=statistics.median(values), low=min(values), high=max(values))
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(SAMPLES))
    tail = (1 - LEVEL) / 2
    low, high = medians[math.floor(tail * (SAMPLES - 1))], medians[math.ceil((1 - tail) * (SAMPLES - 1))]
    return Interval(value=statistics.median(values), low=low, high=high)


def noise_of(alone: Sequence[Round], *, seed: int) -> float:
    """Return the farther end of the interval of A's difference from itself, as a fraction of A's time."""
    interval = median_of([each.difference for each in alone], seed=seed)
    return max(abs(math.expm1(interval.low)), abs(math.expm1(interval.high)))


def judge(alone: Sequence[Round], rounds: Sequence[Round], *, threshold: float, seed: int) -> SpeedEstimate:
    """Compare B with A. ``alone`` are rounds of A with itself, ``threshold`` is the smallest difference that counts.

    B is slower or faster if the difference reaches the threshold and its whole interval is beyond the noise. They are
    the same if both the interval and the noise are within the threshold. Everything else is too noisy.
    """
    logarithm = median_of([each.difference for each in rounds], seed=seed)
    difference = Interval(
        value=math.expm1(logarithm.value), low=math.expm1(logarithm.low), high=math.expm1(logarithm.high)
    )  # fmt: skip
    noise = noise_of(alone, seed=seed)
    verdict: Verdict = "too noisy"
    if difference.value >= threshold and difference.low > noise:
        verdict = "slower"
    elif difference.value <= -threshold and difference.high < -noise:
        verdict = "faster"
    elif -threshold < difference.low and difference.high < threshold and noise < threshold:
        verdict = "same"
    return SpeedEstimate(
        verdict=verdict,
        difference=difference,
        noise=noise,
        a=median_of([time for each in rounds for time in each.a], seed=seed),
        b=median_of([time for each in rounds for time in each.b], seed=seed),
    )
