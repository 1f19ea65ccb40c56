"""Run of a plan: one experiment at a time on each machine; each result is saved at once."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from torchbake.benchmark.expand import PlanCase
from torchbake.benchmark.outcome import BenchResult
from torchbake.benchmark.places import Place
from torchbake.benchmark.records import Records, RunRecord, key_of
from torchbake.checks.smoke_run import Session
from torchbake.core.parallel import run_all
from torchbake.core.problem import Problem
from torchbake.engine.client import Engine
from torchbake.ui.progress_board import Board, board

State = Literal["measured", "kept", "failed", "out-of-memory", "not-run", "excluded"]


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """The end of a case. ``reason`` says why there is no result. In the state ``kept`` an earlier run measured it.

    A case that is skipped as a smaller batch did not fit has a record; a case that its place cannot run has none.
    """

    case: PlanCase
    state: State
    reason: str = ""
    record: RunRecord | None = None


@dataclass(frozen=True, kw_only=True)
class PendingCase:
    """A case with its place. ``result`` is None if it has to be measured."""

    case: PlanCase
    place: Place | None
    result: CaseResult | None


def begin(
    cases: Sequence[PlanCase], places: Mapping[str, Place | Problem], records: Mapping[str, RunRecord]
) -> list[PendingCase]:  # fmt: skip
    """Find the cases that have to be measured.

    ``places`` are by name; a place that cannot be used is a problem. ``records`` are earlier records by key.
    """

    def start(case: PlanCase) -> PendingCase:
        place, result = places[case.place.name], None
        if case.excluded:
            return PendingCase(
                case=case, place=None, result=CaseResult(case=case, state="excluded", reason=case.excluded)
            )
        if isinstance(place, Problem):
            return PendingCase(
                case=case, place=None, result=CaseResult(case=case, state="failed", reason=place.sentence)
            )
        if problem := place.problem(case.experiment):
            result = CaseResult(case=case, state="not-run", reason=problem.sentence)
        elif record := records.get(key_of(case.experiment, place.where)):
            result = CaseResult(case=case, state="kept", record=record)
        return PendingCase(case=case, place=place, result=result)

    return [start(case) for case in cases]


@dataclass(frozen=True, kw_only=True)
class PlanRun:
    """A run of a plan. ``limit`` is seconds for one experiment; ``engine`` is None if no image is measured.

    ``stop``: skip batches that are larger than one that did not fit into the memory.
    """

    records: Records
    session: Session
    engine: Engine | None
    limit: int
    stop: bool = False

    def run(self, items: Sequence[PendingCase]) -> list[CaseResult]:
        """Measure the cases and return their ends in the given order. Machines work in parallel.

        Raise KeyboardInterrupt after all experiments have ended, and OSError for a file that cannot be written.
        """
        waiting = [each for each in items if each.result is None and each.place]
        queues = lines_of(waiting)
        with board(len(waiting), doing="benchmark") as progress, contextlib.ExitStack() as clean_up:
            stop = partial(self.session.stop, self.engine, clean_up)
            ends = run_all(queues, lambda queue: self._queue(queue, progress), jobs=max(1, len(queues)), stop=stop)
        by_name = {_name(result.case): result for queue in ends for result in queue}
        return [each.result or by_name[_name(each.case)] for each in items]

    def _queue(self, queue: Sequence[PendingCase], progress: Board) -> list[CaseResult]:
        too_large: dict[tuple[object, ...], int] = {}  # by the experiment without its batch size
        results = []
        for each in queue:
            series, size = _series(each.case), each.case.experiment.batch_size
            if self.stop and size > too_large.get(series, size):
                results.append(self._skip(each, too_large[series], progress))
                continue
            results.append(self._measure(each, progress))
            if results[-1].state == "out-of-memory":
                too_large[series] = min(size, too_large.get(series, size))
        return results

    def _skip(self, item: PendingCase, size: int, progress: Board) -> CaseResult:
        """Record a case that is skipped, as a batch of ``size`` did not fit."""
        assert item.place
        experiment, where = item.case.experiment, item.place.where
        reason = f"A batch of {size} did not fit into the memory, and this one is larger."
        record = RunRecord(
            experiment=experiment, where=where, command=item.place.command(experiment), started=_now(),
            seconds=0, reason=reason, failure="not-run",
        )  # fmt: skip
        self.records.add(record)
        progress.start(_name(item.case), "larger than a batch that did not fit")
        progress.end(_name(item.case), reason, good=False)
        return CaseResult(case=item.case, state="not-run", reason=reason, record=record)

    def _measure(self, item: PendingCase, progress: Board) -> CaseResult:
        assert item.place
        if self.session.stopping.is_set():
            raise KeyboardInterrupt
        name, experiment = _name(item.case), item.case.experiment
        progress.start(name, f"{experiment.settings.num_batches} batches")
        start, clock = _now(), time.monotonic()
        outcome = item.place.measure(experiment, self.limit)
        record = RunRecord(
            experiment=experiment, where=item.place.where, command=item.place.command(experiment), started=start,
            seconds=round(time.monotonic() - clock, 2), reason=outcome.reason,
            failure="out-of-memory" if outcome.out_of_memory else "", result=outcome.result, monitor=outcome.monitor,
        )  # fmt: skip
        self.records.add(record)
        progress.end(name, _words(record.result) if record.result else record.reason, good=record.result is not None)
        failure: State = "out-of-memory" if outcome.out_of_memory else "failed"
        state = "measured" if record.result else failure
        return CaseResult(case=item.case, state=state, reason=record.reason, record=record)


def lines_of(waiting: Sequence[PendingCase]) -> list[list[PendingCase]]:
    """Split the work into queues that have no machine in common, each in the given order."""
    groups = list[frozenset[str]]()
    for each in waiting:
        machines = each.place.where.machines if each.place else frozenset[str]()
        shared = [group for group in groups if group & machines]
        groups = [group for group in groups if group not in shared] + [machines.union(*shared)]
    return [[each for each in waiting if each.place and each.place.where.machines <= group] for group in groups]


def unfinished(results: Sequence[CaseResult], *, stop: bool) -> list[CaseResult]:
    """Return the failures. With ``stop``, a batch that does not fit is no failure if a smaller one was measured."""
    fitting = {_series(each.case) for each in results if each.record and each.record.result}
    failures = [each for each in results if each.state in ("failed", "out-of-memory")]
    return [each for each in failures if each.state == "failed" or not (stop and _series(each.case) in fitting)]


def _series(case: PlanCase) -> tuple[object, ...]:
    """Return a key that is equal for cases that only differ in their batch size."""
    axes = {name: value for name, value in case.experiment if name not in ("batch_size", "settings", "source")}
    return (*axes.values(), case.place.name)


def _name(case: PlanCase) -> str:
    return f"{case.experiment.name}, {case.place.name}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _words(result: BenchResult) -> str:
    """Return a result in a few words."""
    return f"{figure(result.throughput)} samples/s, {milliseconds(result.time.median)} a batch"


def milliseconds(seconds: float) -> str:
    """Format milliseconds with at least three digits: ``12.0 ms``, ``1230 ms``."""
    return f"{figure(1000 * seconds, 3)} ms"


def figure(value: float, least: int = 4) -> str:
    """Format a number with at least ``least`` digits, and all digits before its point: ``9.810``, ``12345``."""
    return f"{value:.0f}" if value >= 10 ** (least - 1) else f"{value:#.{least}g}".rstrip(".")
