"""A process that is waited for hears what only its parent was told, and not twice what the terminal told it."""

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from torchbake.core import child

BY_TERMINAL, BY_PROCESS = 0x80, 0


class Sleeper:
    """A child that ends by the first signal it is sent, or by itself at the third look."""

    returncode: int | None = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.looks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def poll(self) -> int | None:
        self.looks += 1
        if self.looks > 2 and self.returncode is None:
            self.returncode = 0
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.returncode = -number


@pytest.mark.parametrize(
    ("number", "sender", "code"),
    [
        (signal.SIGTERM, BY_PROCESS, 143),
        (signal.SIGINT, BY_TERMINAL, 0),
        (signal.SIGHUP, BY_PROCESS, 129),
        (signal.SIGHUP, BY_TERMINAL, 129),
    ],
)
def test_a_signal_is_handed_on(monkeypatch: pytest.MonkeyPatch, number: int, sender: int, code: int) -> None:
    def wait(numbers: set[int]) -> SimpleNamespace:
        assert number in numbers
        return SimpleNamespace(si_signo=number, si_code=sender)

    monkeypatch.setattr(subprocess, "Popen", Sleeper)
    monkeypatch.setattr(signal, "sigwaitinfo", wait)
    assert child.run(["x"], folder=Path("/"), env={}) == code


def test_a_signal_that_was_lost_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Sleeper):
        heard = 0

        def poll(self) -> int | None:
            return self.returncode

        def send_signal(self, number: int) -> None:
            self.heard += 1
            if self.heard == 3:
                self.returncode = -number

    interrupt = SimpleNamespace(si_signo=signal.SIGINT, si_code=BY_PROCESS)
    monkeypatch.setattr(subprocess, "Popen", Deaf)
    monkeypatch.setattr(signal, "sigwaitinfo", lambda _: interrupt)
    monkeypatch.setattr(signal, "sigtimedwait", lambda _, seconds: None if seconds == 10 else pytest.fail(str(seconds)))
    assert child.run(["x"], folder=Path("/"), env={}, insist=10) == 130


def test_a_child_that_exits_0_after_a_stop_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unmoved(Sleeper):
        def send_signal(self, number: int) -> None:
            """It drops the signal."""

    interrupt = SimpleNamespace(si_signo=signal.SIGINT, si_code=BY_PROCESS)
    monkeypatch.setattr(subprocess, "Popen", Unmoved)
    monkeypatch.setattr(signal, "sigwaitinfo", lambda _: interrupt)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
    assert child.run(["x"], folder=Path("/"), env={}, insist=10) == 130
    assert child.run(["x"], folder=Path("/"), env={}) == 0
