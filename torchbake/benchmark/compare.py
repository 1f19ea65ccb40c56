"""Comparison of two images on one machine by interleaved runs. The first image against itself gives the noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchbake.benchmark.estimate import Interval, Round, SpeedEstimate, Verdict, judge
from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.places import Place
from torchbake.benchmark.run import milliseconds
from torchbake.errors import BenchmarkError

ROUNDS = 6  # the fewest whose range contains the median with 95%: see `torchbake.benchmark.estimate`
_MORE = 3  # times the requested rounds are run at most, before the verdict is "too noisy"
_WORST: tuple[Verdict, ...] = ("slower", "too noisy", "faster", "same")


@dataclass(frozen=True, kw_only=True)
class ExperimentComparison:
    """The result of one experiment in both images after ``rounds`` rounds."""

    experiment: Experiment
    judgement: SpeedEstimate
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of two places: ``rounds`` of the first place alone, then as many of both, each of four runs.

    While the verdict is "too noisy", up to ``most_rounds`` of both are run. A smaller difference than ``threshold``, a
    fraction of A's time, does not count. Each run has ``limit`` seconds.
    """

    a: Place
    b: Place
    rounds: int = ROUNDS
    threshold: float = 0.05
    seed: int = 0
    limit: int = 3600

    @property
    def most_rounds(self) -> int:
        return _MORE * self.rounds

    def run(self, experiment: Experiment, on_look: Callable[[str], None] = lambda _: None) -> ExperimentComparison:
        """Raise BenchmarkError if a run fails, and KeyboardInterrupt once the run is stopped."""
        on_look("trying both")
        for place in [self.a] if self.a.where == self.b.where else [self.a, self.b]:
            self._median(place, experiment)  # not counted: the first run reads files from the disk
        alone, both = list[Round](), list[Round]()
        while len(alone) < self.rounds:
            on_look(f"the first with itself, round {len(alone) + 1}")
            alone.append(self._round(self.a, self.a, experiment))
        while True:
            on_look(f"both, round {len(both) + 1}")
            both.append(self._round(self.a, self.b, experiment))
            if len(both) < self.rounds:
                continue
            judgement = judge(alone, both, threshold=self.threshold, seed=self.seed)
            if judgement.verdict != "too noisy" or len(both) == self.most_rounds:
                return ExperimentComparison(experiment=experiment, judgement=judgement, rounds=len(both))
            if judgement.noise >= self.threshold:  # more rounds of both alone cannot lower the noise
                alone.append(self._round(self.a, self.a, experiment))

    def _round(self, a: Place, b: Place, experiment: Experiment) -> Round:
        first, second, third, fourth = (self._median(place, experiment) for place in (a, b, b, a))
        return Round(a=(first, fourth), b=(second, third))

    def _median(self, place: Place, experiment: Experiment) -> float:
        outcome = place.measure(experiment, self.limit)
        if outcome.result is None:
            raise BenchmarkError(f"{experiment.name} in {place.place_name.name}: {outcome.reason}")
        return outcome.result.time.median


def overall(comparisons: Sequence[ExperimentComparison]) -> Verdict:
    """Return the worst verdict of several experiments."""
    return min((each.judgement.verdict for each in comparisons), key=_WORST.index)


def sentence(judgement: SpeedEstimate) -> str:
    """Format a judgement: ``slower by 10.2% (+9.1% to +11.0%), noise 1.2%``."""
    value = judgement.difference
    is_clear = judgement.verdict in ("slower", "faster")
    amount = f" by {abs(value.value):.1%}" if is_clear else f", {value.value:+.1%}"
    return f"{judgement.verdict}{amount} ({value.low:+.1%} to {value.high:+.1%}), noise {judgement.noise:.1%}"


def as_json(each: ExperimentComparison) -> dict[str, Any]:
    """Return a comparison for programs: times in seconds, differences as fractions of A's time."""

    def as_dict(interval: Interval) -> dict[str, float]:
        return {"median": interval.value, "low": interval.low, "high": interval.high}

    judgement = each.judgement
    return {
        "experiment": each.experiment.model_dump(),
        "verdict": judgement.verdict,
        "difference": as_dict(judgement.difference),
        "noise": judgement.noise,
        "a": as_dict(judgement.a),
        "b": as_dict(judgement.b),
        "rounds": each.rounds,
    }


def row(each: ExperimentComparison) -> tuple[str, ...]:
    """Return the cells of a comparison in a table: the experiment, both medians, and the verdict."""
    judgement = each.judgement
    return each.experiment.name, milliseconds(judgement.a.value), milliseconds(judgement.b.value), sentence(judgement)
