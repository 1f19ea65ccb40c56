"""Run of the image checks: one pytest process for each image, several in parallel, each with a verdict."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from torchbake.checks.reports import file_name
from torchbake.checks.verdict import CheckResult, Outcome, Verdict, read_results, tally
from torchbake.checks.waivers import waive
from torchbake.core.foreign_folder import open_file
from torchbake.core.parallel import run_all
from torchbake.core.signals import signal_group, signal_name
from torchbake.ui import console
from torchbake.ui.progress_board import Board, board
from torchbake.ui.tool_environment import environment_of

SUITE_CHECK = "suite"  # fails if the suite itself fails
_PATIENCE = 20  # seconds for clean-up after SIGINT
_LOOK = 0.25  # seconds between reads of a log
_MOST_CHECKS = 10  # failed checks that a run shows
_TAIL = 15  # lines of a log in a reason
_CODES = {2: "interrupted", 3: "an error inside pytest", 4: "an invalid command line", 5: "no check is selected"}
_LINE = re.compile(r"^\S+::test_([^\s\[]+)(?:\[(\S+)\])? .*?\[ *(\d+)%\]\s*$", flags=re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class CheckTarget:
    """An image to test: its name in output, its reference, its row (empty: none), and the digests of its verdict.

    ``how`` are the options in the suite digest, ``waivers`` the checks that may fail, with the reasons. ``origin`` is
    the parent of a derived image. With ``no_row`` the image is compared with no row, whatever its labels name.
    """

    name: str
    ref: str
    row: str
    digest: str
    suite: str
    promise: str = ""
    how: tuple[str, ...] = ()
    waivers: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    no_row: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of a run. With ``only`` or ``skip`` a verdict is partial. ``waivers`` add to those of the matrix."""

    gpu: str = "auto"
    nodes: int | None = None
    nproc: int | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    timeout: float = 1800
    waivers: Mapping[str, str] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        return bool(self.only or self.skip)

    def decisive(self, gpu: str = "") -> tuple[str, ...]:
        """Return the options in the suite digest. The GPU mode is another field of a verdict.

        ``gpu`` is the method by which containers get a GPU here (`Gpu.how`; empty: none is requested), as a verdict
        without a GPU is outdated once the host has one.
        """
        waived = (f"waive {check}={reason}" for check, reason in sorted(self.waivers.items()))
        part = (f"{word}={glob}" for word, globs in (("only", self.only), ("skip", self.skip)) for glob in globs)
        return f"nodes={self.nodes}", f"nproc={self.nproc}", *([f"gpu={gpu}"] if gpu else []), *part, *waived


@dataclass(frozen=True, kw_only=True)
class SuiteEnd:
    """The end of a suite's process: its code (negative: the signal), and the last lines of its log."""

    code: int
    tail: tuple[str, ...]
    timed_out: bool = False


class Suite:
    """The checks in ``folder``, run by one process for each image; thread-safe."""

    def __init__(self, folder: Path, options: CheckOptions, *, cwd: Path, extra: Sequence[str] = ()) -> None:
        self._folder, self._options, self._cwd, self._extra = folder, options, cwd, extra
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def judge(self, target: CheckTarget, log: Path, on_look: Callable[[str], None]) -> Verdict:
        """Run all checks of one image to their end. ``on_look`` receives the progress. The log is kept."""
        start, clock = datetime.now(UTC), time.monotonic()
        results = log.with_suffix(".json")
        results.unlink(missing_ok=True)
        end = self._run(self.command(target, results), log, on_look)
        return Verdict(
            image=target.ref, id=target.row, digest=target.digest, suite=target.suite, promise=target.promise,
            how=target.how, gpu=self._options.gpu, started=start.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 2),
            checks=waive(checks_of(end, results, self._options.timeout), target.waivers),
        )  # fmt: skip

    def command(self, target: CheckTarget, results: Path) -> list[str]:
        """Return the pytest command for one image."""
        options = self._options
        command = [sys.executable, "-m", "pytest", str(self._folder), "-v", "--color=no", "-p", "no:cacheprovider"]
        command += ["--image", target.ref, "--gpu", options.gpu, "--results", str(results), *self._extra]
        digest = "" if "@" in target.ref else target.digest  # a tag can have moved since
        arguments = {"digest": digest, "row": target.row, "derived": target.origin}
        for name, value in {**arguments, "nodes": options.nodes, "nproc": options.nproc}.items():
            command += [f"--{name}", str(value)] if value else []
        command += ["--no-row"] if target.no_row else []
        for name, globs in (("--only", options.only), ("--skip", options.skip)):
            command += [word for glob in globs for word in (name, glob)]
        return command

    def stop(self) -> None:
        """End all processes, and wait until each has cleaned up."""
        with self._lock:
            self._stopped = True
            running = list(self._processes)
        _end(running)

    def _run(self, command: list[str], log: Path, on_look: Callable[[str], None]) -> SuiteEnd:
        handle = open_file(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(handle, "wb") as writing, log.open(encoding="utf-8", errors="replace") as reading:
            process, late = self._start(command, writing.fileno()), False
            deadline = time.monotonic() + self._options.timeout
            try:
                while not _has_ended(process):
                    for name, parameter, percent in _LINE.findall(reading.read()):
                        on_look(f"{percent} %, after: {name.replace('_', ' ')} {parameter}".rstrip())
                    if time.monotonic() > deadline:
                        late = True
                        _end([process])
            finally:
                # A suite that crashed can have left children, which must not outlive the verdict.
                signal_group(process, signal.SIGKILL)
                with self._lock:
                    self._processes.discard(process)
        with log.open(encoding="utf-8", errors="replace") as lines:  # without empty lines and rulers
            tail = tuple(deque((line.rstrip() for line in lines if line.strip(" =-_\n")), maxlen=_TAIL))
        return SuiteEnd(code=process.returncode, tail=tail, timed_out=late)

    def _start(self, command: list[str], log: int) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            # In its own session, so that Ctrl-C only reaches this process, which then ends the suites in order.
            process = subprocess.Popen(
                command, cwd=self._cwd, env=environment_of("pytest"), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._processes.add(process)
        return process


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """A run of a suite on several images, with its logs in ``folder``; ``keep`` saves each verdict at once."""

    __test__ = False  # the name is not pytest's to collect

    suite: Suite
    folder: Path
    keep: Callable[[CheckTarget, Verdict], Path]

    def run(self, targets: Sequence[CheckTarget], *, jobs: int) -> list[Verdict]:
        """Test all targets and return their verdicts in order.

        Raise KeyboardInterrupt after ending all processes; finished verdicts are kept.
        """
        if not targets:
            return []
        with board(len(targets), doing="testing") as progress:
            return run_all(
                targets,
                lambda target: self._one(target, progress),
                jobs=jobs,
                stop=self._stop,
                on_end=lambda target, verdict: self._finish(target, verdict.result(), progress),
            )

    def _one(self, target: CheckTarget, progress: Board) -> Verdict:
        progress.start(target.name, target.ref)
        return self.suite.judge(target, self._log(target), lambda place: progress.look(target.name, place))

    def _stop(self) -> None:
        console.say("stopping; verdicts that are finished are kept …", style="yellow")
        self.suite.stop()

    def _finish(self, target: CheckTarget, verdict: Verdict, progress: Board) -> None:
        report = self.keep(target, verdict)
        good = verdict.outcome is Outcome.PASSED
        progress.end(target.name, f"{verdict.outcome} in {verdict.seconds:.1f} s, {tally(verdict.checks)}", good=good)
        if good:
            return
        failed = verdict.of(Outcome.FAILED)
        for check in failed[:_MOST_CHECKS]:
            console.say(f"    {check.id}: {check.summary}", style="dim")
        if len(failed) > _MOST_CHECKS:
            console.say(f"    … and {len(failed) - _MOST_CHECKS} more", style="dim")
        console.say(f"    the report: {report}")
        console.say(f"    the whole log: {self._log(target)}")

    def _log(self, target: CheckTarget) -> Path:
        return self.folder / f"{file_name(target.name)}.log"


def checks_of(end: SuiteEnd, results: Path, timeout: float) -> tuple[CheckResult, ...]:
    """Return the results of a suite. If it did not end properly, add the failed check `SUITE_CHECK`."""
    checks: tuple[CheckResult, ...] = ()
    problem = ""
    if end.timed_out:
        problem = f"the checks did not end within {timeout:g} s (see --timeout)"
    elif end.code < 0:
        problem = f"the checks were ended by {signal_name(-end.code)}: {_last(end.tail)}"
    elif end.code not in (0, 1):  # 1: some checks failed
        problem = f"pytest ended with {end.code} ({_CODES.get(end.code, 'unknown')}): {_last(end.tail)}"
    try:
        checks = read_results(results.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problem = problem or "the checks left no results"
    except ValueError as error:
        problem = problem or f"the checks left results that cannot be read: {error}"
    if not problem and end.code == 1 and all(check.outcome is not Outcome.FAILED for check in checks):
        problem = "pytest failed, but no check did"
    if not problem:
        return checks
    reason = "\n".join((problem, *end.tail)).strip()
    return (*checks, CheckResult(id=SUITE_CHECK, outcome=Outcome.FAILED, reason=reason))


def _last(tail: Sequence[str]) -> str:
    errors = [line for line in tail if re.match(r"(E  |ERROR|(\S+ )?\S*error:|!)", line, flags=re.IGNORECASE)]
    return (errors or list(tail) or ["it said nothing"])[-1].strip("! ").removeprefix("E  ").strip()


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK)
    return process.returncode is not None


def _end(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Send SIGINT, on which pytest tears down its fixtures; after `_PATIENCE` send SIGKILL."""
    running = list(processes)
    deadline = time.monotonic() + _PATIENCE
    try:
        for process in running:
            signal_group(process, signal.SIGINT)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
    finally:  # also after a second Ctrl-C
        for process in running:
            signal_group(process, signal.SIGKILL)
            process.wait()
