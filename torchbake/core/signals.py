"""How a run ends when it is told to, and what it does first. The standard library alone is imported here."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

_BY_OTHERS = (signal.SIGTERM, signal.SIGHUP)  # a CI job that is cancelled; a terminal that is closed


def _by_others() -> tuple[signal.Signals, ...]:
    """Without SIGHUP where it is ignored: what `nohup` starts is to outlive the terminal."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return _BY_OTHERS if hangs_up else (signal.SIGTERM,)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as orderly as Ctrl-C does; after the first of the three, those two are ignored."""
    numbers = _by_others()

    def interrupt(*_: Any) -> None:
        for number in numbers:  # a second one, as `timeout` sends, is not to end it otherwise
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    by_keyboard = signal.getsignal(signal.SIGINT)
    if by_keyboard is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        # It ends already: a second, impatient one is not to end it otherwise.
        before = dict.fromkeys(numbers, signal.SIG_IGN)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGINT, by_keyboard)


@contextlib.contextmanager
def signals_heard_by(handle: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP end nothing meanwhile: ``handle`` gets their numbers.

    In another thread than the main one, the only one that signals interrupt, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, *_by_others())
    before = {number: signal.signal(number, lambda number, _: handle(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def to_its_end() -> Iterator[None]:
    """An interrupt waits for the end of a request: what an engine makes after its sender is gone, nobody removes."""
    came: list[int] = []
    try:
        with signals_heard_by(came.append):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def interrupted_once(later: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Of several interrupts the first raises KeyboardInterrupt; of each other one ``later`` is told.

    So what the first one makes us put away is put away. From a call of what this gives on, none interrupts.
    """
    heard = False

    def close() -> None:
        nonlocal heard
        heard = True

    def hear(_number: int) -> None:
        if heard:
            later()
        else:
            close()
            raise KeyboardInterrupt

    with signals_heard_by(hear):
        yield close


def shell_code(returncode: int) -> int:
    """How a process ended, as a shell has it: 128 and the signal's number where one ended it."""
    return returncode if returncode >= 0 else 128 - returncode


def signal_name(number: int) -> str:
    """``SIGKILL``; ``signal 99`` for what has no name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
