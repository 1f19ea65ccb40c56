"""Shared results of parallel test processes: the first process that needs one makes it."""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def in_turn(lock: Path) -> Iterator[None]:
    """Allow one process at a time for each lock file."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def once(folder: Path, name: str, make: Callable[[], Any]) -> Any:
    """Return the JSON result of ``make``, which runs only in the first process; the other processes wait for it.

    If ``make`` fails the test, it is not tried again, and the tests of the other processes fail too.
    """
    with in_turn(folder / f"{name}.lock"):
        path = folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(_tried(make)))
    item, failure = json.loads(path.read_text())
    if failure:
        pytest.fail(failure, pytrace=False)
    return item


def _tried(make: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return make(), ""
    except pytest.fail.Exception as failed:
        return None, failed.msg or "it failed"
