"""Wait for a change that another process makes."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Return as soon as the condition holds.

    Raises:
        AssertionError: it did not come about within these seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about within {seconds:g} s"
        time.sleep(0.01)
