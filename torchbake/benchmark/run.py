"""A run of a plan: one experiment at a time on each machine, each kept as soon as it is measured."""

import contextlib
import shlex
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

State = Literal["measured", "kept", "failed", "not-run", "excluded"]


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of a case. ``reason`` is why there is no result; ``kept``: it was measured by a run before."""

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
    """Measures what is not yet. ``limit`` is in seconds, for one experiment; ``engine`` is None where none is asked."""

    records: Records
    session: Session
    engine: Engine | None
    limit: int

    def run(self, begun: Sequence[Begun]) -> list[Done]:
        """What became of each, in the given order. Machines work side by side, each on one experiment at a time.

        Raises KeyboardInterrupt after all that was started has ended, and OSError for a file that cannot be written.
        """
        waiting = [each for each in begun if each.done is None and each.place]
        machines = list(dict.fromkeys(each.place.where.host for each in waiting if each.place))
        with board(len(waiting), doing="benchmark") as shown, contextlib.ExitStack() as clean_up:
            lists = run_all(
                [[each for each in waiting if each.place and each.place.where.host == machine] for machine in machines],
                lambda line: [self._one(each, shown) for each in line],
                jobs=max(1, len(machines)),
                stop=partial(self.session.stop, self.engine, clean_up),
            )
        by_name = {(done.case.experiment.name, done.case.place.name): done for line in lists for done in line}
        return [each.done or by_name[each.case.experiment.name, each.case.place.name] for each in begun]

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
        state: State = "measured" if record.result else "failed"
        return Done(case=begun.case, state=state, reason=record.reason, record=record)


def measure(place: Place, experiment: Experiment, limit: int) -> Record:
    """One measurement, or why there is none."""
    started, clock = datetime.now(UTC), time.monotonic()
    outcome = place.measure(experiment, limit)
    return Record(
        experiment=experiment,
        where=place.where,
        command=shlex.join(place.words(experiment)),
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 2),
        reason=outcome if isinstance(outcome, str) else "",
        result=None if isinstance(outcome, str) else outcome,
    )


def told(result: Result) -> str:
    """A result in a few words."""
    return f"{figure(result.throughput)} samples/s, {milliseconds(result.time.median)} a batch"


def milliseconds(seconds: float) -> str:
    """Three figures or more: ``12.0 ms``, ``1230 ms``."""
    return f"{figure(1000 * seconds, 3)} ms"


def figure(value: float, least: int = 4) -> str:
    """A number with so many figures, and all of those before its point: ``9.810``, ``12345``."""
    return f"{value:.0f}" if value >= 10 ** (least - 1) else f"{value:#.{least}g}".rstrip(".")
