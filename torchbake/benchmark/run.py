"""A run of a plan: one experiment at a time on each machine, each kept as soon as it is measured."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from torchbake.benchmark.expand import Case, Experiment
from torchbake.benchmark.outcome import Result
from torchbake.benchmark.places import Place
from torchbake.benchmark.records import Record, Records, key_of
from torchbake.checks.smoke_run import Session
from torchbake.core.parallel import run_all
from torchbake.core.problem import Problem
from torchbake.engine.client import Engine
from torchbake.ui.progress_board import Board, board

State = Literal["measured", "kept", "failed", "out-of-memory", "not-run", "excluded"]


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of a case. ``reason`` is why there is no result; ``kept``: it was measured by a run before.

    A case that is not run after a smaller batch did not fit has a record; one that its place cannot run has none.
    """

    case: Case
    state: State
    reason: str = ""
    record: Record | None = None


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A case with its place, and what is known without measuring it: None where it is to be measured."""

    case: Case
    place: Place | None
    done: Done | None


def begin(
    cases: Sequence[Case], places: Mapping[str, Place | Problem], measured: Mapping[str, Record]
) -> list[Begun]:  # fmt: skip
    """What is to be measured. ``places`` are by name, or why one cannot be used; ``measured`` are by key."""
    return [_begun(case, places[case.place.name], measured) for case in cases]


def _begun(case: Case, place: Place | Problem, measured: Mapping[str, Record]) -> Begun:
    if case.excluded:
        return Begun(case=case, place=None, done=Done(case=case, state="excluded", reason=case.excluded))
    if isinstance(place, Problem):
        return Begun(case=case, place=None, done=Done(case=case, state="failed", reason=place.sentence))
    problem = place.problem(case.experiment)
    if problem:
        return Begun(case=case, place=place, done=Done(case=case, state="not-run", reason=problem.sentence))
    record = measured.get(key_of(case.experiment, place.where))
    return Begun(case=case, place=place, done=Done(case=case, state="kept", record=record) if record else None)


@dataclass(frozen=True, kw_only=True)
class PlanRun:
    """Measures what is not yet. ``limit`` is in seconds, for one experiment; ``engine`` is None where none is asked.

    ``stop``: a batch that is larger than one that did not fit into the memory is not run.
    """

    records: Records
    session: Session
    engine: Engine | None
    limit: int
    stop: bool = False

    def run(self, begun: Sequence[Begun]) -> list[Done]:
        """What became of each, in the given order. Machines work side by side, each on one experiment at a time.

        Raises KeyboardInterrupt after all that was started has ended, and OSError for a file that cannot be written.
        """
        waiting = [each for each in begun if each.done is None and each.place]
        together = lines_of(waiting)
        with board(len(waiting), doing="benchmark") as shown, contextlib.ExitStack() as clean_up:
            lists = run_all(
                together,
                lambda line: self._line(line, shown),
                jobs=max(1, len(together)),
                stop=partial(self.session.stop, self.engine, clean_up),
            )
        by_name = {(done.case.experiment.name, done.case.place.name): done for line in lists for done in line}
        return [each.done or by_name[each.case.experiment.name, each.case.place.name] for each in begun]

    def _line(self, line: Sequence[Begun], shown: Board) -> list[Done]:
        """One after the other on the same machine."""
        too_large: dict[tuple[object, ...], int] = {}  # by the experiment without its batch size
        found = []
        for each in line:
            series, size = _series(each.case), each.case.experiment.batch_size
            if self.stop and size > too_large.get(series, size):
                found.append(self._left_out(each, too_large[series], shown))
                continue
            found.append(self._one(each, shown))
            if found[-1].state == "out-of-memory":
                too_large[series] = min(size, too_large.get(series, size))
        return found

    def _left_out(self, begun: Begun, size: int, shown: Board) -> Done:
        """Record a case that is not run, with the batch size that did not fit."""
        assert begun.place
        experiment, where = begun.case.experiment, begun.place.where
        reason = f"A batch of {size} did not fit into the memory, and this one is larger."
        record = Record(
            experiment=experiment, where=where, command=begun.place.command(experiment), started=_now(),
            seconds=0, reason=reason, failure="not-run",
        )  # fmt: skip
        self.records.add(record)
        name = f"{experiment.name}, {begun.case.place.name}"
        shown.start(name, "larger than a batch that did not fit")
        shown.end(name, reason, good=False)
        return Done(case=begun.case, state="not-run", reason=reason, record=record)

    def _one(self, begun: Begun, shown: Board) -> Done:
        assert begun.place
        if self.session.stopping.is_set():
            raise KeyboardInterrupt
        name = f"{begun.case.experiment.name}, {begun.case.place.name}"
        shown.start(name, f"{begun.case.experiment.settings.num_batches} batches")
        record = measure(begun.place, begun.case.experiment, self.limit)
        self.records.add(record)
        summary = told(record.result) if record.result else record.reason
        shown.end(name, summary, good=record.result is not None)
        lacking = record.failure == "out-of-memory"
        state: State = "measured" if record.result else "out-of-memory" if lacking else "failed"
        return Done(case=begun.case, state=state, reason=record.reason, record=record)


def measure(place: Place, experiment: Experiment, limit: int) -> Record:
    """One measurement, or why there is none."""
    started, clock = _now(), time.monotonic()
    outcome = place.measure(experiment, limit)
    return Record(
        experiment=experiment,
        where=place.where,
        command=place.command(experiment),
        started=started,
        seconds=round(time.monotonic() - clock, 2),
        reason=outcome.reason,
        failure="out-of-memory" if outcome.out_of_memory else "",
        result=outcome.result,
        monitor=outcome.monitor,
    )


def lines_of(waiting: Sequence[Begun]) -> list[list[Begun]]:
    """Group the work so that two groups have no machine in common, each in the given order."""
    groups = list[frozenset[str]]()
    for each in waiting:
        machines = each.place.where.machines if each.place else frozenset[str]()
        shared = [group for group in groups if group & machines]
        groups = [group for group in groups if group not in shared] + [machines.union(*shared)]
    return [[each for each in waiting if each.place and each.place.where.machines <= group] for group in groups]


def unfinished(done: Sequence[Done], *, stop: bool) -> list[Done]:
    """Find failures. With ``stop`` a batch that does not fit is no failure if a smaller one was measured."""
    fitting = {_series(each.case) for each in done if each.record and each.record.result}
    found = [each for each in done if each.state in ("failed", "out-of-memory")]
    return [each for each in found if each.state == "failed" or not (stop and _series(each.case) in fitting)]


def _series(case: Case) -> tuple[object, ...]:
    """Equal for experiments that differ in their batch size alone."""
    axes = {name: value for name, value in case.experiment if name not in ("batch_size", "settings", "source")}
    return (*axes.values(), case.place.name)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def told(result: Result) -> str:
    """A result in a few words."""
    return f"{figure(result.throughput)} samples/s, {milliseconds(result.time.median)} a batch"


def milliseconds(seconds: float) -> str:
    """Three figures or more: ``12.0 ms``, ``1230 ms``."""
    return f"{figure(1000 * seconds, 3)} ms"


def figure(value: float, least: int = 4) -> str:
    """A number with so many figures, and all of those before its point: ``9.810``, ``12345``."""
    return f"{value:.0f}" if value >= 10 ** (least - 1) else f"{value:#.{least}g}".rstrip(".")
