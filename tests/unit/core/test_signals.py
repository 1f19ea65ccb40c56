"""The behaviour of all commands at signals."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from torchbake.core.signals import (
    interrupted_once,
    interruptible,
    shell_code,
    signal_name,
    signals_heard_by,
    to_its_end,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """An interrupted command ends, so it leaves SIGTERM and SIGHUP ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", SIGNALS)
def test_a_second_signal_does_not_cut_the_clean_up_short(first: signal.Signals) -> None:
    cleaned: list[bool] = []

    def work() -> None:
        with interruptible():
            try:
                os.kill(os.getpid(), first)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGHUP)
                cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned


def test_afterwards_signals_are_what_they_were() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with interruptible():
        pass
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_is_to_outlive_its_terminal_does() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    messages: list[int] = []
    with interruptible(), signals_heard_by(messages.append):
        os.kill(os.getpid(), signal.SIGHUP)
    assert messages == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_shielded_block_learns_of_a_signal_and_goes_on(number: signal.Signals) -> None:
    messages: list[int] = []
    before = signal.getsignal(number)
    with signals_heard_by(messages.append):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert messages == [number, number]
    assert signal.getsignal(number) is before


def test_in_another_thread_signals_stay_who_they_were_for() -> None:
    handlers: list[object] = []

    def work() -> None:
        with signals_heard_by(lambda _: None):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


def test_an_interrupt_waits_for_the_end_and_then_interrupts() -> None:
    ends: list[bool] = []

    def request() -> None:
        with to_its_end():
            os.kill(os.getpid(), signal.SIGINT)
            ends.append(True)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        request()
    assert ends


@pytest.mark.parametrize("number", SIGNALS)
def test_of_several_interrupts_the_first_alone_interrupts(number: signal.Signals) -> None:
    lines: list[str] = []

    def work() -> None:
        with interrupted_once(lambda: lines.append("later")):
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lines == ["later", "later"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_done_is_not_interrupted_any_more() -> None:
    lines: list[str] = []
    with interrupted_once(lambda: lines.append("later")) as hear_no_more:
        hear_no_more()
        signal.raise_signal(signal.SIGINT)
    assert lines == ["later"]


def test_signals_have_names() -> None:
    assert (signal_name(9), signal_name(99)) == ("SIGKILL", "signal 99")


def test_a_signal_that_ended_a_process_makes_its_exit_code() -> None:
    assert [shell_code(code) for code in (0, 3, -9)] == [0, 3, 137]
