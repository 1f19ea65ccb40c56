"""Calls of a function at regular times, in a thread of their own, while a piece of work runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


def duration(seconds: float) -> str:
    """Return a duration for people: ``45 s`` or ``2 min 5 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
