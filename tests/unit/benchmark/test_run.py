"""A run of a plan: measured and kept experiments, and the reasons of the others."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.benchmark.cases import NO_MEMORY, Fake, each, experiment
from tests.unit.processes import interrupt
from torchbake.benchmark.expand import Experiment, PlaceName, PlanCase
from torchbake.benchmark.outcome import RunOutcome
from torchbake.benchmark.places import Place
from torchbake.benchmark.records import Records
from torchbake.benchmark.run import CaseResult, PlanRun, begin, figure, milliseconds, unfinished
from torchbake.checks.smoke_run import Session
from torchbake.core.problem import Problem, unknown

MODELS = ("a", "b", "c")


def cases(place: str = "image", excluded: str = "") -> list[PlanCase]:
    place_name = PlaceName(kind="image", word=place, name=place)
    return [PlanCase(experiment=experiment(name), place=place_name, excluded=excluded) for name in MODELS]


def run(
    records: Records, matches: list[PlanCase], *places: Place, session: Session | None = None, stop: bool = False
) -> list[CaseResult]:  # fmt: skip
    items = begin(matches, {place.place_name.name: place for place in places}, records.results())
    return PlanRun(records=records, session=session or Session(), engine=None, limit=60, stop=stop).run(items)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(path=tmp_path / "results.jsonl")


def test_results_are_kept_and_failures_are_tried_again(records: Records) -> None:
    first = run(records, cases(), Fake("image", each(0.1, "Out of memory.", 0.3)))
    assert [(one.state, one.reason) for one in first] == [
        ("measured", ""), ("failed", "Out of memory."), ("measured", ""),
    ]  # fmt: skip
    again = Fake("image", each(0.2))
    second = run(records, cases(), again)
    assert [one.state for one in second] == ["kept", "measured", "kept"]
    assert [one.model for one in again.runs] == ["b"]
    assert [one.record.result.time.median for one in second if one.record and one.record.result] == [0.1, 0.2, 0.3]


def sizes(*sizes: int, place: str = "image", **more: Any) -> list[PlanCase]:
    place_name = PlaceName(kind="image", word=place, name=place)
    return [PlanCase(experiment=experiment(batch_size=size, **more), place=place_name) for size in sizes]


def test_nothing_larger_is_run_after_a_batch_that_does_not_fit(records: Records) -> None:
    matches = [*sizes(16, 32, 64, 128), *sizes(16, 32, phase="inference"), *sizes(64, 32, place="large")]
    small = Fake("image", each(0.1, NO_MEMORY, 0.3, "It failed."))
    large = Fake("large", each(0.1, 0.1))
    results = run(records, matches, small, large, stop=True)
    assert [one.state for one in results] == [
        "measured", "out-of-memory", "not-run", "not-run", "measured", "failed", "measured", "measured",
    ]  # fmt: skip
    assert [one.batch_size for one in small.runs] == [16, 32, 16, 32]
    assert results[3].reason == "A batch of 32 did not fit into the memory, and this one is larger."
    outcomes = {(one.where.name, one.experiment.phase, one.experiment.batch_size): one.status for one in records.all()}
    assert outcomes["image", "training", 32] == "out-of-memory"
    assert outcomes["image", "training", 64] == outcomes["image", "training", 128] == "not-run"
    assert not any(one.result for one in records.all() if one.status != "success")
    again = run(records, matches[:4], Fake("image", each(0.1, 0.1, 0.1)), stop=True)
    assert [one.state for one in again] == ["kept", "measured", "measured", "measured"]


def test_without_being_asked_every_batch_is_tried(records: Records) -> None:
    results = run(records, sizes(16, 32), Fake("image", each(NO_MEMORY, 0.1)))
    assert [one.state for one in results] == ["out-of-memory", "measured"]


def test_a_batch_search_fails_only_if_no_batch_fits(records: Records) -> None:
    matches = [*sizes(16, 32, 64), *sizes(16, 32, phase="inference")]
    results = run(records, matches, Fake("image", each(0.1, NO_MEMORY, NO_MEMORY)), stop=True)
    bad = [(one.case.experiment.phase, one.state) for one in unfinished(results, stop=True)]
    assert bad == [("inference", "out-of-memory")]
    assert len(unfinished(results, stop=False)) == 2


def test_a_run_that_is_interrupted_keeps_what_it_has(records: Records) -> None:
    session, fake = Session(), Fake("image")
    measure = fake.measure

    def then_interrupt(what: object, limit: int) -> object:
        if len(fake.runs) == 1:
            interrupt()
            while not session.stopping.wait(0.01):
                pass
            raise KeyboardInterrupt
        return measure(what, limit)  # type: ignore[arg-type]

    fake.measure = then_interrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        run(records, cases(), fake, session=session)
    assert [one.experiment.model for one in records.all()] == ["a"]
    assert [one.state for one in run(records, cases(), Fake("image"))] == ["kept", "measured", "measured"]


def test_a_machine_runs_one_experiment_and_waits_for_no_other(records: Records) -> None:
    at_work, most, lock = dict.fromkeys(("one", "two"), 0), dict[str, int](), threading.Lock()
    together = threading.Barrier(2, timeout=10)

    class Busy(Fake):
        def measure(self, experiment: Experiment, limit: int) -> RunOutcome:
            host = self.where.host
            with lock:
                at_work[host] += 1
                most[host] = max(most.get(host, 0), at_work[host])
            together.wait()
            time.sleep(0.01)
            with lock:
                at_work[host] -= 1
            return super().measure(experiment, limit)

    names = ("x", "y", "z")
    hosts = {"x": "one", "y": "two", "z": "two"}
    matches = [*cases("x"), *cases("x")[:0], *cases("y")[:2], *cases("z")[:1]]
    results = run(records, matches, *(Busy(name, host=hosts[name]) for name in names))
    assert [one.state for one in results] == ["measured"] * 6
    assert [one.case for one in results] == matches
    assert most == {"one": 1, "two": 1}


def test_what_cannot_be_run_says_why_and_keeps_nobody_waiting(records: Records) -> None:
    class NoGpu(Fake):
        def problem(self, what: object) -> Problem:
            return unknown("no GPU: there is none")

    matches = [*cases("a"), *cases("b", excluded="a good reason"), *cases("gone")]
    items = begin(matches, {"a": NoGpu("a"), "b": Fake("b"), "gone": Problem(reason="gone is not in the engine.")}, {})
    results = PlanRun(records=records, session=Session(), engine=None, limit=60).run(items)
    assert [(one.state, one.reason) for one in results[::3]] == [
        ("not-run", "no GPU: there is none"), ("excluded", "a good reason"), ("failed", "gone is not in the engine."),
    ]  # fmt: skip
    assert records.all() == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.5, "1500 ms"), (0.1, "100 ms"), (0.0721, "72.1 ms"), (0.072, "72.0 ms"), (0.0000123, "0.0123 ms")],
)
def test_times_have_three_figures(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12346"), (999.96, "1000"), (160.0, "160.0"), (0.02022, "0.02022")]
)
def test_a_figure_has_no_exponent(value: float, text: str) -> None:
    assert figure(value) == text
