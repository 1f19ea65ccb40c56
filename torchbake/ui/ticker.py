"""Calls of a function at regular times, in a thread of their own, while a piece of work runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

HEARTBEAT = 15.0  # seconds without a line after which a log shows that the work goes on
WORTH_A_LINE = 2.0  # seconds; lines of shorter steps would bury those of long ones in a CI log
TICK = 0.5  # seconds


@contextmanager
def ticking(call: Callable[[], None]) -> Iterator[None]:
    """Call a function every half second until the end of the block. A fault of the function ends the calls alone."""
    end = threading.Event()

    def run() -> None:
        while not end.wait(TICK):
            call()

    thread = threading.Thread(target=run, daemon=True, name="torchbake-ticker")
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@dataclass
class Heartbeat:
    """The times of a piece of work in a plain log, in seconds of a clock: of its start, and of its last line."""

    began: float = field(default_factory=time.monotonic)
    last_line: float = 0.0

    def __post_init__(self) -> None:
        self.last_line = self.last_line or self.began

    def wrote(self) -> None:
        """Note a line about the work."""
        self.last_line = time.monotonic()

    def is_quiet_for(self, seconds: float) -> bool:
        """Return whether the work had no line for this time."""
        return time.monotonic() - self.last_line >= seconds

    def line(self, text: str) -> str:
        """Return the line that shows that the work goes on, if it is due; else an empty text."""
        if not self.is_quiet_for(HEARTBEAT):
            return ""
        self.wrote()
        return f"still: {text} ({duration(self.last_line - self.began)})"


def duration(seconds: float) -> str:
    """Return a duration for people: ``45 s`` or ``2 min 5 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
