"""A comparison: interleaved, the machine's own noise first, and only as long as it must be."""

import itertools

import pytest

from tests.unit.benchmark.cases import Fake, each, experiment
from tests.unit.benchmark.test_estimate import Machine
from torchbake.benchmark.compare import Comparison, ExperimentComparison, as_json, overall, sentence
from torchbake.benchmark.estimate import Verdict
from torchbake.errors import BenchmarkError


def compare(slower: float, seed: int = 0, **changes: int) -> tuple[ExperimentComparison, str]:
    """With the order of the runs."""
    machine, order = Machine(seed), list[str]()

    def run(name: str, seconds: float) -> float:
        order.append(name)
        return machine.run(seconds)

    a, b = Fake("a", lambda: run("a", 0.1)), Fake("b", lambda: run("b", 0.1 * slower))
    comparison = Comparison(a=a, b=b, **changes).run(experiment())
    return comparison, "".join(order)


def test_the_first_is_measured_with_itself_and_then_both_in_turn() -> None:
    comparison, order = compare(1.1, rounds=3)
    assert order == "ab" + "aaaa" * 3 + "abba" * 3
    assert (comparison.judgement.verdict, comparison.rounds) == ("slower", 3)
    assert comparison.judgement.difference.value == pytest.approx(0.1, abs=0.03)


def test_unclear_results_get_more_rounds_up_to_a_limit() -> None:
    a, b = Fake("a", itertools.cycle([0.1, 0.1, 0.1, 0.2]).__next__), Fake("b", itertools.cycle([0.1, 0.14]).__next__)
    comparison = Comparison(a=a, b=b, rounds=2).run(experiment())
    assert (comparison.judgement.verdict, comparison.rounds) == ("too noisy", 6)


def test_an_image_is_the_same_as_itself() -> None:
    for seed in range(20):
        comparison, order = compare(1.0, seed, rounds=3)
        assert comparison.judgement.verdict == "same", sentence(comparison.judgement)
        assert order.count("a") > order.count("b"), seed


def test_a_run_that_fails_ends_it_with_the_reason() -> None:
    with pytest.raises(BenchmarkError, match=r"resnet50 training float32 batch 16 cpu in b: Out of memory\."):
        Comparison(a=Fake("a"), b=Fake("b", each(0.1, "Out of memory."))).run(experiment())


@pytest.mark.parametrize(
    ("slower", "verdict"), [((1, 1.2), "slower"), ((1, 0.8), "faster"), ((1, 1), "same"), ((0.8, 1.2), "slower")]
)
def test_the_worst_of_several_is_the_verdict_of_all(slower: tuple[float, ...], verdict: Verdict) -> None:
    assert overall([compare(each, rounds=1)[0] for each in slower]) == verdict


def test_a_program_is_told_all_of_it() -> None:
    comparison, _ = compare(1.2, rounds=2)
    data = as_json(comparison)
    assert (data["verdict"], data["rounds"], data["experiment"]["model"]) == ("slower", 2, "resnet50")
    assert data["difference"]["low"] <= data["difference"]["median"] <= data["difference"]["high"]
    assert data["b"]["median"] == pytest.approx(1.2 * data["a"]["median"], rel=0.05)
    assert sentence(comparison.judgement).startswith(f"slower by {data['difference']['median']:.1%} (")
