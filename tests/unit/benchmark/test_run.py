"""A run of a plan: what is measured, kept, and said of the rest."""

import threading
import time
from pathlib import Path

import pytest

from tests.unit.benchmark.cases import Fake, each, experiment
from tests.unit.processes import interrupt
from torchbake.benchmark.expand import Case, Experiment, Named
from torchbake.benchmark.outcome import Result
from torchbake.benchmark.places import Place
from torchbake.benchmark.records import Records
from torchbake.benchmark.run import Done, PlanRun, begin, figure, milliseconds
from torchbake.checks.smoke_run import Session
from torchbake.core.problem import Problem, unknown

MODELS = ("a", "b", "c")


def cases(place: str = "image", excluded: str = "") -> list[Case]:
    named = Named(kind="image", word=place, name=place)
    return [Case(experiment=experiment(name), place=named, excluded=excluded) for name in MODELS]


def run(records: Records, found: list[Case], *places: Place, session: Session | None = None) -> list[Done]:
    begun = begin(found, {place.named.name: place for place in places}, records.measured())
    return PlanRun(records=records, session=session or Session(), engine=None, limit=60).run(begun)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(path=tmp_path / "results.jsonl")


def test_what_was_measured_is_kept_and_what_failed_is_tried_again(records: Records) -> None:
    first = run(records, cases(), Fake("image", each(0.1, "Out of memory.", 0.3)))
    assert [(one.state, one.reason) for one in first] == [
        ("measured", ""), ("failed", "Out of memory."), ("measured", ""),
    ]  # fmt: skip
    again = Fake("image", each(0.2))
    second = run(records, cases(), again)
    assert [one.state for one in second] == ["kept", "measured", "kept"]
    assert [one.model for one in again.runs] == ["b"]
    assert [one.record.result.time.median for one in second if one.record and one.record.result] == [0.1, 0.2, 0.3]


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


def test_a_machine_does_one_thing_at_a_time_and_machines_do_not_wait_for_each_other(records: Records) -> None:
    at_work, most, lock = dict.fromkeys(("one", "two"), 0), dict[str, int](), threading.Lock()
    together = threading.Barrier(2, timeout=10)

    class Busy(Fake):
        def measure(self, experiment: Experiment, limit: int) -> Result | str:
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
    found = [*cases("x"), *cases("x")[:0], *cases("y")[:2], *cases("z")[:1]]
    done = run(records, found, *(Busy(name, host=hosts[name]) for name in names))
    assert [one.state for one in done] == ["measured"] * 6
    assert [one.case for one in done] == found
    assert most == {"one": 1, "two": 1}


def test_what_cannot_be_run_says_why_and_keeps_nobody_waiting(records: Records) -> None:
    class NoGpu(Fake):
        def problem(self, what: object) -> Problem:
            return unknown("no GPU: there is none")

    found = [*cases("a"), *cases("b", excluded="a good reason"), *cases("gone")]
    begun = begin(found, {"a": NoGpu("a"), "b": Fake("b"), "gone": Problem(reason="gone is not in the engine.")}, {})
    done = PlanRun(records=records, session=Session(), engine=None, limit=60).run(begun)
    assert [(one.state, one.reason) for one in done[::3]] == [
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
