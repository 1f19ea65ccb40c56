"""How a run ends when it is told to."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM (a CI job that is cancelled) ends a run as orderly as Ctrl-C does; after either, SIGTERM is ignored."""

    def interrupt(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one, as `timeout` sends, is not to end it otherwise
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    by_keyboard = signal.getsignal(signal.SIGINT)
    if by_keyboard is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        before = signal.SIG_IGN  # it ends already: a second, impatient one is not to end it otherwise
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, by_keyboard)
