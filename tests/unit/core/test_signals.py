"""What all commands have in common."""

import os
import signal
from collections.abc import Iterator

import pytest

from torchbake.core.signals import interruptible


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """An interrupted command ends, so it leaves SIGTERM ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_cut_the_clean_up_short(first: signal.Signals) -> None:
    cleaned: list[bool] = []

    def work() -> None:
        with interruptible():
            try:
                os.kill(os.getpid(), first)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned


def test_afterwards_signals_are_what_they_were() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with interruptible():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
