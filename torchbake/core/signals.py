"""Handlers for SIGINT, SIGTERM and SIGHUP. Imports the standard library alone."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any


def _termination_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and SIGHUP unless it is ignored: a command that `nohup` started outlives its terminal."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP as for Ctrl-C. After the first signal these two are ignored."""
    numbers = _termination_signals()

    def interrupt(*_: Any) -> None:
        for number in numbers:  # `timeout` sends a second signal, which must not interrupt the cleanup
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    by_keyboard = signal.getsignal(signal.SIGINT)
    if by_keyboard is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        before = dict.fromkeys(numbers, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGINT, by_keyboard)


@contextlib.contextmanager
def signals_heard_by(handle: Callable[[int], None]) -> Iterator[None]:
    """Call ``handle`` with the number of each SIGINT, SIGTERM and SIGHUP, in place of its effect, during the block.

    In a thread other than the main one nothing changes: Python handles signals in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, *_termination_signals())
    before = {number: signal.signal(number, lambda number, _: handle(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def to_its_end() -> Iterator[None]:
    """Delay signals until the block ends: nobody would remove a container that an engine creates after an interrupt."""
    delayed: list[int] = []
    try:
        with signals_heard_by(delayed.append):
            yield
    finally:
        if delayed:
            signal.raise_signal(delayed[0])


@contextlib.contextmanager
def interrupted_once(later: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt for the first signal, and call ``later`` for each other, so that the cleanup completes.

    After a call of the yielded function no signal interrupts.
    """
    closed = False

    def close() -> None:
        nonlocal closed
        closed = True

    def handle(_number: int) -> None:
        if closed:
            later()
        else:
            close()
            raise KeyboardInterrupt

    with signals_heard_by(handle):
        yield close


def shell_code(returncode: int) -> int:
    """Return a process's exit code as a shell has it: 128 plus the signal's number if a signal ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def signal_name(number: int) -> str:
    """Return a signal's name, such as ``SIGKILL``; ``signal 99`` if it has none."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def signal_group(process: "subprocess.Popen[Any]", number: int) -> None:
    """Send a signal to all processes of a session that ``process`` leads. None may be left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
