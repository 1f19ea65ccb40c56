"""What tests in several processes have in common is made by the first of them that asks for it."""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def once(folder: Path, name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` returned in the process that was first, as JSON holds it; the others wait for it meanwhile.

    Where ``make`` failed the test, it is not tried again: so do the tests of the others.
    """
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / f"{name}.json"
        if not kept.exists():
            kept.write_text(json.dumps(_tried(make)))
    made, failure = json.loads(kept.read_text())
    if failure:
        pytest.fail(failure, pytrace=False)
    return made


def _tried(make: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return make(), ""
    except pytest.fail.Exception as failed:
        return None, failed.msg or "it failed"
