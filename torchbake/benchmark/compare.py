"""Two images on one machine, their runs interleaved; first the one with itself, for how much the machine wavers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchbake.benchmark.estimate import Interval, Judgement, Round, Verdict, judge
from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.places import Place
from torchbake.benchmark.run import milliseconds
from torchbake.errors import BenchmarkError

ROUNDS = 6  # the fewest whose range holds the median with 95%, by `torchbake.benchmark.estimate`
_MORE = 3  # times the rounds that were asked for, until it is too noisy
_WORST: tuple[Verdict, ...] = ("slower", "too noisy", "faster", "same")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One experiment in both images. ``rounds`` is how many it took."""

    experiment: Experiment
    judgement: Judgement
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How two places are compared: ``rounds`` of four runs, after as many of the first place alone.

    There are up to ``most_rounds`` of both while it cannot be told.

    ``threshold`` is the least difference that counts, as a part of A's time; ``limit`` is in seconds, for one run.
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

    def run(self, experiment: Experiment, on_look: Callable[[str], None] = lambda _: None) -> Compared:
        """Raises BenchmarkError where a run fails, and KeyboardInterrupt once the run is stopped."""
        on_look("trying both")
        for place in dict.fromkeys((self.a.where, self.b.where)):  # files are read from the disk by the first run
            self._median(self.a if place == self.a.where else self.b, experiment)
        alone = list[Round]()
        for number in range(self.rounds):
            on_look(f"the first with itself, round {number + 1}")
            alone.append(self._round(self.a, self.a, experiment))
        *_, last = self._rounds(experiment, alone, on_look)
        return last

    def _rounds(self, experiment: Experiment, alone: list[Round], on_look: Callable[[str], None]) -> Iterator[Compared]:
        """What is known after each round from the first that may be the last one on."""
        rounds = list[Round]()
        for number in range(1, self.most_rounds + 1):
            on_look(f"both, round {number}")
            rounds.append(self._round(self.a, self.b, experiment))
            if number < self.rounds:
                continue
            judgement = judge(alone, rounds, threshold=self.threshold, seed=self.seed)
            yield Compared(experiment=experiment, judgement=judgement, rounds=number)
            if judgement.verdict != "too noisy":
                return
            if judgement.noise >= self.threshold:  # more rounds of both could not be told from it
                alone.append(self._round(self.a, self.a, experiment))

    def _round(self, a: Place, b: Place, experiment: Experiment) -> Round:
        first, second, third, fourth = (self._median(place, experiment) for place in (a, b, b, a))
        return Round(a=(first, fourth), b=(second, third))

    def _median(self, place: Place, experiment: Experiment) -> float:
        outcome = place.measure(experiment, self.limit)
        if outcome.result is None:
            raise BenchmarkError(f"{experiment.name} in {place.named.name}: {outcome.reason}")
        return outcome.result.time.median


def overall(compared: Sequence[Compared]) -> Verdict:
    """The verdict of several experiments: the worst of them."""
    return min((each.judgement.verdict for each in compared), key=_WORST.index)


def sentence(judgement: Judgement) -> str:
    """``slower by 10.2% (9.1% to 11.0%), noise 1.2%``."""
    difference = judgement.difference
    by = (
        f" by {abs(difference.value):.1%}"
        if judgement.verdict in ("slower", "faster")
        else f", {difference.value:+.1%}"
    )
    return f"{judgement.verdict}{by} ({difference.low:+.1%} to {difference.high:+.1%}), noise {judgement.noise:.1%}"


def as_json(each: Compared) -> dict[str, Any]:
    """For a program; times in seconds, differences as parts of A's time."""
    judgement = each.judgement
    return {
        "experiment": each.experiment.model_dump(),
        "verdict": judgement.verdict,
        "difference": _interval(judgement.difference),
        "noise": judgement.noise,
        "a": _interval(judgement.a),
        "b": _interval(judgement.b),
        "rounds": each.rounds,
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {"median": interval.value, "low": interval.low, "high": interval.high}


def row(each: Compared) -> tuple[str, ...]:
    """For a table: the experiment, both medians, and the verdict."""
    judgement = each.judgement
    return each.experiment.name, milliseconds(judgement.a.value), milliseconds(judgement.b.value), sentence(judgement)
