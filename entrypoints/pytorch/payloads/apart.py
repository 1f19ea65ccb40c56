"""Runs a payload in a child process: a crash or a hang ends only the child, and is reported with the running check."""

import ctypes
import faulthandler
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, Protocol

from ..launch.limits import THREAD_LIMIT
from .verdict import PayloadOutcome, PayloadVerdict, Tell, one_line

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_SECONDS = 0.2


class Signalled(BaseException):
    """Raised by a signal that ends this process; the text is the signal's name."""


@dataclass
class ProcessEnd:
    """The end of the child: its verdict, or the reason why there is none, with the seconds of the finished checks."""

    verdict: PayloadVerdict | None = None
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


class Observer(Protocol):
    """Watches the child, and receives its events that are neither verdicts nor checks."""

    def look(self, pid: int) -> None: ...
    def hear(self, event: Mapping[str, Any]) -> None: ...


def run_apart(
    work: Callable[[Tell], PayloadVerdict], timeout: float, name: str = "smoke", observer: Observer | None = None
) -> ProcessEnd:
    """Run ``work`` in a forked child for at most ``timeout`` seconds (inf: no limit), and leave no process behind.

    The ``observer`` is called about every 0.2 s, in this thread. The child's stdout is this process's stderr, so that
    the output of libraries cannot come between the lines of the verdicts. Raises Told.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        return ProcessEnd(reason=f"its process cannot be started ({error.strerror}): {THREAD_LIMIT}")
    if child == 0:
        os.close(reading)
        _be_child(work, writing, timeout, parent, name)
    os.close(writing)
    with suppress(OSError):
        os.setpgid(child, child)  # both processes do it, as either may be first
    watch = _Watch(child, reading, observer)
    try:
        with _signals_raise():
            return watch.follow(time.monotonic() + timeout, timeout)
    except Signalled as report:
        raise Signalled(f"{report}{watch.place}") from None
    finally:
        watch.close()


class _Watch:
    """The events of the child until now."""

    def __init__(self, child: int, reading: int, observer: Observer | None) -> None:
        self._observer = observer
        self._child = child
        self._reading = reading
        self._unfinished = b""
        self._end = ProcessEnd()
        self._doing = ""
        self._code: int | None = None

    @property
    def place(self) -> str:
        return f" in the check {self._doing}" if self._doing else ""

    def follow(self, deadline: float, timeout: float) -> ProcessEnd:
        while self._end.verdict is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self._end.reason = f"no end after {timeout:g} s{self.place}: it was killed"
                return self._end
            if self._observer:
                self._observer.look(self._child)
            ready, _, _ = select.select([self._reading], [], [], min(left, _LOOK_SECONDS))
            if ready and self._read():
                continue
            # The pipe is at its end, or empty: a grandchild may keep it open after the child's death.
            if self._is_dead(wait=bool(ready)) and not self._read_verdict():
                code = self._code or 0
                how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code} and no verdict"
                self._end.reason = f"the process ended {how}{self.place}"
                return self._end
        return self._end

    def close(self) -> None:
        """Kill the child and its descendants."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child, signal.SIGKILL)
        self._is_dead(wait=True)
        os.close(self._reading)

    def _read(self) -> bool:
        """Read the events in the pipe; return False at its end."""
        data = os.read(self._reading, 65536)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        return bool(data)

    def _read_verdict(self) -> bool:
        """Read the events before the child's death; return True if the verdict is among them."""
        while select.select([self._reading], [], [], 0)[0] and self._read():
            pass
        return self._end.verdict is not None

    def _hear(self, event: Mapping[str, Any]) -> None:
        if "begin" in event:
            self._doing = event["begin"]
        elif "end" in event:
            self._doing = ""
            if "seconds" in event:
                self._end.seconds[event["end"]] = event["seconds"]
        elif "verdict" in event:
            values = event["verdict"]
            self._end.verdict = PayloadVerdict(**{**values, "outcome": PayloadOutcome(values["outcome"])})
        elif self._observer:
            self._observer.hear(event)

    def _is_dead(self, *, wait: bool) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self._child, 0 if wait else os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code is not None


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise Told at the first SIGTERM or SIGINT, and ignore further ones, so that the end can still be reported.

    `timeout`, for one, signals its child and then the child's process group.
    """

    numbers, before = (signal.SIGTERM, signal.SIGINT), dict[signal.Signals, Any]()

    def handle(number: int, _frame: FrameType | None) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        before.clear()
        raise Signalled(signal.Signals(number).name)

    for number in numbers:
        before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in list(before.items()):
            signal.signal(number, handler)


def _be_child(work: Callable[[Tell], PayloadVerdict], writing: int, timeout: float, parent: int, name: str) -> NoReturn:
    """Run ``work`` and end the process without Python's finalization, in which C++ threads of torch can abort."""

    def tell(event: Mapping[str, Any]) -> None:
        line = json.dumps(event, default=str).encode() + b"\n"
        while line:
            line = line[os.write(writing, line) :]

    code = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)  # the parent died before prctl
        os.dup2(2, 1)
        faulthandler.enable()
        if timeout < math.inf:
            faulthandler.dump_traceback_later(timeout * 0.95)  # the place of a hang, on stderr
        verdict = work(tell)
        faulthandler.cancel_dump_traceback_later()
        tell({"verdict": {**vars(verdict), "outcome": verdict.outcome.value}})
        code = 0
    except BaseException as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)
