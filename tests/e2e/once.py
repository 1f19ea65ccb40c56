"""What tests in several processes have in common is made by the first of them that asks for it."""

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def in_turn(lock: Path) -> Iterator[None]:
    """One process at a time, of all that name the same file."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def once(folder: Path, name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` returned in the process that was first, as JSON holds it; the others wait for it meanwhile.

    Where ``make`` failed the test, it is not tried again: so do the tests of the others.
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
