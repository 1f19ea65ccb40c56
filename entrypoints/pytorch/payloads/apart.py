"""Runs a payload in a process of its own: a crash or a hang ends only that one, and is told with its place."""

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
from .verdict import Outcome, Tell, Verdict, said

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_SECONDS = 0.2


class Told(BaseException):
    """A signal told us to end; the text is its name."""


@dataclass
class Ended:
    """How the process ended: with a verdict, or with the reason why there is none and what was done until then."""

    verdict: Verdict | None = None
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


class Observer(Protocol):
    """Looks at the process from outside, and hears events that are no verdict and no check."""

    def look(self, pid: int) -> None: ...
    def hear(self, event: Mapping[str, Any]) -> None: ...


class _Nobody:
    def look(self, pid: int) -> None:
        pass

    def hear(self, event: Mapping[str, Any]) -> None:
        pass


def run_apart(
    work: Callable[[Tell], Verdict], timeout: float, name: str = "smoke", observer: Observer | None = None
) -> Ended:
    """Fork, ``work`` there, and wait at most ``timeout`` seconds (inf: for ever); nothing of it is left running.

    The ``observer`` looks at the process about every 0.2 s, in this thread.
    Its stdout is our stderr, so that what libraries print cannot come between the lines of the verdicts. Raises Told.
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
        return Ended(reason=f"its process cannot be started ({error.strerror}): {THREAD_LIMIT}")
    if child == 0:
        os.close(reading)
        _be_child(work, writing, timeout, parent, name)
    os.close(writing)
    with suppress(OSError):
        os.setpgid(child, child)  # both sides do it, whoever comes first
    watch = _Watch(child, reading, observer or _Nobody())
    try:
        with _told_by_signals():
            return watch.follow(time.monotonic() + timeout, timeout)
    except Told as told:
        raise Told(f"{told}{watch.place}") from None
    finally:
        watch.close()


class _Watch:
    """What the child has told so far."""

    def __init__(self, child: int, reading: int, observer: Observer) -> None:
        self._observer = observer
        self._child = child
        self._reading = reading
        self._unfinished = b""
        self._ended = Ended()
        self._doing = ""
        self._code: int | None = None

    @property
    def place(self) -> str:
        return f" in the check {self._doing}" if self._doing else ""

    def follow(self, deadline: float, timeout: float) -> Ended:
        while self._ended.verdict is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self._ended.reason = f"no end after {timeout:g} s{self.place}: it was killed"
                return self._ended
            self._observer.look(self._child)
            ready, _, _ = select.select([self._reading], [], [], min(left, _LOOK_SECONDS))
            if ready and self._read():
                continue
            # Nothing more to read, or nothing now: a grandchild may hold the pipe open when the child is dead.
            if self._is_dead(wait=bool(ready)) and not self._rest():
                self._ended.reason = f"the process ended {self._how()}{self.place}"
                return self._ended
        return self._ended

    def close(self) -> None:
        """Kill what is left of the child and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child, signal.SIGKILL)
        self._is_dead(wait=True)
        os.close(self._reading)

    def _read(self) -> bool:
        """Hear what there is; False at the end."""
        data = os.read(self._reading, 65536)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        return bool(data)

    def _rest(self) -> bool:
        """What the child wrote before it died; True when that was the verdict."""
        while select.select([self._reading], [], [], 0)[0] and self._read():
            pass
        return self._ended.verdict is not None

    def _hear(self, event: Mapping[str, Any]) -> None:
        if "begin" in event:
            self._doing = event["begin"]
        elif "end" in event:
            self._doing = ""
            if "seconds" in event:
                self._ended.seconds[event["end"]] = event["seconds"]
        elif "verdict" in event:
            values = event["verdict"]
            self._ended.verdict = Verdict(**{**values, "outcome": Outcome(values["outcome"])})
        else:
            self._observer.hear(event)

    def _is_dead(self, *, wait: bool) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self._child, 0 if wait else os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code is not None

    def _how(self) -> str:
        if self._code is not None and self._code < 0:
            return f"by {signal.Signals(-self._code).name}"
        return f"with exit code {self._code} and no verdict"


@contextmanager
def _told_by_signals() -> Iterator[None]:
    """Raises Told at the first signal that tells us to end, and is deaf to more: what is left is to say how it ended.

    `timeout`, for one, signals its child and then the child's process group.
    """
    numbers = (signal.SIGTERM, signal.SIGINT)
    told = False

    def tell(number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal told
        told = True
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Told(signal.Signals(number).name)

    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield
    finally:
        if not told:
            for number, handler in before.items():
                signal.signal(number, handler)


def _be_child(work: Callable[[Tell], Verdict], writing: int, timeout: float, parent: int, name: str) -> NoReturn:
    """Ends the process without Python's tear-down, in which C++ threads of a torch that did its work can abort."""
    code = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)  # it died before we asked to be told
        os.dup2(2, 1)
        faulthandler.enable()
        if timeout < math.inf:
            faulthandler.dump_traceback_later(timeout * 0.95)  # where it hangs, on stderr
        tell = _teller(writing)
        verdict = work(tell)
        faulthandler.cancel_dump_traceback_later()
        tell({"verdict": {**vars(verdict), "outcome": verdict.outcome.value}})
        code = 0
    except BaseException as error:
        print(f"{name}: {said(error)}", file=sys.stderr)
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _teller(writing: int) -> Tell:
    def tell(event: Mapping[str, Any]) -> None:
        line = json.dumps(event, default=str).encode() + b"\n"
        while line:
            line = line[os.write(writing, line) :]

    return tell
