"""Verdicts of comparisons: a machine's drift is no difference, a tenth is."""

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conftest import NIGHTLY
from torchbake.benchmark import estimate
from torchbake.benchmark.compare import ROUNDS
from torchbake.benchmark.estimate import Round, SpeedEstimate, judge, median_of, noise_of

TIMES = st.lists(st.floats(min_value=1e-6, max_value=1e4), min_size=1, max_size=30)
SEEDS = range(20 if NIGHTLY else 10)


class Machine:
    """A machine with a warm-up, swings, drift, delays within runs, and an offset for each run."""

    def __init__(self, seed: int, noise: float = 1.0) -> None:
        self.chance, self.noise, self.runs, self.walk = random.Random(seed), noise, 0, 0.0

    def run(self, seconds: float, batches: int = 30) -> float:
        """The median of a run's batches."""
        self.runs += 1
        self.walk += self.chance.gauss(0, 0.004 * self.noise)
        heat = 0.04 * (1 - math.exp(-self.runs / 8)) + 0.01 * math.sin(self.runs / 3)
        level = seconds * (1 + heat) * math.exp(self.walk + self.chance.gauss(0, 0.008 * self.noise))
        return statistics.median(self._batch(level) for _ in range(batches))

    def _batch(self, level: float) -> float:
        held_up = self.chance.uniform(1.5, 6) if self.chance.random() < 0.02 else 1
        return level * held_up * math.exp(abs(self.chance.gauss(0, 0.02)))

    def round(self, a: float, b: float) -> Round:
        first, second, third, fourth = map(self.run, (a, b, b, a))
        return Round(a=(first, fourth), b=(second, third))


def compared(seed: int, slower: float, *, noise: float = 1.0, threshold: float = 0.05) -> SpeedEstimate:
    machine = Machine(seed, noise)
    alone = [machine.round(0.1, 0.1) for _ in range(ROUNDS)]
    return judge(alone, [machine.round(0.1, 0.1 * slower) for _ in range(ROUNDS)], threshold=threshold, seed=0)


@pytest.mark.parametrize(("slower", "verdict"), [(1.0, "same"), (1.1, "slower"), (0.9, "faster"), (1.02, "same")])
def test_drift_is_no_difference_and_a_tenth_is_with_every_seed(slower: float, verdict: str) -> None:
    assert [compared(seed, slower).verdict for seed in SEEDS] == [verdict] * len(SEEDS)


def test_too_noisy_a_machine_decides_no_difference() -> None:
    verdicts = [compared(seed, 1.1, noise=40).verdict for seed in SEEDS]
    assert verdicts.count("too noisy") >= 0.9 * len(SEEDS)
    assert "faster" not in verdicts
    assert "slower" not in [compared(seed, 1.0, noise=40).verdict for seed in SEEDS]


@given(st.floats(0.001, 1000), st.floats(-0.2, 0.2))
def test_what_grows_evenly_over_a_round_cancels(seconds: float, growth: float) -> None:
    a, b, c, d = (seconds * math.exp(growth * place) for place in range(4))
    assert Round(a=(a, d), b=(b, c)).difference == pytest.approx(0, abs=1e-9)


@settings(deadline=None, max_examples=15)
@given(TIMES, st.integers(0, 5))
def test_an_interval_holds_its_median_and_is_reproducible(values: list[float], seed: int) -> None:
    value = median_of(values, seed=seed)
    assert min(values) <= value.low <= value.value <= value.high <= max(values)
    assert value == median_of(values, seed=seed)


@settings(deadline=None, max_examples=15)
@given(st.floats(0.3, 3), st.floats(0.01, 0.3))
def test_without_noise_the_threshold_decides(ratio: float, threshold: float) -> None:
    alone = [Round(a=(1, 1), b=(1, 1))] * 2
    value = judge(alone, [Round(a=(1, 1), b=(ratio, ratio))] * 3, threshold=threshold, seed=0)
    expected = "slower" if ratio - 1 >= threshold else "faster" if ratio - 1 <= -threshold else "same"
    assert value.verdict == expected or abs(abs(ratio - 1) - threshold) < 1e-9
    assert value.difference.value == pytest.approx(ratio - 1)


@settings(deadline=None, max_examples=15)
@given(TIMES.filter(lambda times: len(times) >= 4), st.floats(0.01, 0.5), st.integers(0, 3))
def test_nothing_below_the_noise_is_called_a_difference(times: list[float], threshold: float, seed: int) -> None:
    rounds = [
        Round(a=(a, d), b=(b, c)) for a, b, c, d in zip(*[iter(times[: len(times) // 4 * 4])] * 4, strict=True)
    ]  # fmt: skip
    value = judge(rounds, rounds, threshold=threshold, seed=seed)  # as far from itself as from the other
    assert value.verdict in ("same", "too noisy")


def test_where_noise_is_beyond_the_threshold_nothing_is_the_same() -> None:
    alone = [Round(a=(1, 1), b=(1.2, 1.2))]
    assert judge(alone, [Round(a=(1, 1), b=(1, 1))], threshold=0.1, seed=0).verdict == "too noisy"
    assert judge(alone, [Round(a=(1, 1), b=(1, 1))], threshold=0.3, seed=0).verdict == "same"
    assert judge(alone, [Round(a=(1, 1), b=(2, 2))], threshold=0.1, seed=0).verdict == "slower"


def test_noise_is_the_farther_end_of_its_interval() -> None:
    rounds = [Round(a=(1, 1), b=(ratio, ratio)) for ratio in (0.9, 1.0, 1.05)]
    assert noise_of(rounds, seed=0) == pytest.approx(0.1)


def test_the_interval_covers_the_median_at_its_stated_rate() -> None:
    chance, hits, tries = random.Random(1), 0, 100 if NIGHTLY else 50
    for _ in range(tries):
        value = median_of([chance.gauss(1, 0.1) for _ in range(25)], seed=0)
        hits += value.low <= 1 <= value.high
    assert estimate.LEVEL == 0.95
    assert hits >= 0.88 * tries


@pytest.mark.parametrize("count", [2, 3, 5, ROUNDS, 7, 8])
def test_the_interval_of_few_rounds_covers_at_the_pages_rate(count: int) -> None:
    chance, tries = random.Random(1), 4000
    intervals = (median_of([chance.gauss(1, 0.1) for _ in range(count)], seed=0) for _ in range(tries))
    hits = sum(value.low <= 1 <= value.high for value in intervals) / tries
    assert hits == pytest.approx(1 - 2 ** (1 - count), abs=0.02)


def test_the_default_number_of_rounds_suffices_for_the_level() -> None:
    assert 1 - 2 ** (1 - ROUNDS) >= estimate.LEVEL > 1 - 2 ** (2 - ROUNDS)
    assert 1 - 2 * (1 + estimate.FEW) / 2**estimate.FEW < estimate.LEVEL  # one value fewer at either end
    assert 1 - 2 * (2 + estimate.FEW) / 2 ** (estimate.FEW + 1) >= estimate.LEVEL
