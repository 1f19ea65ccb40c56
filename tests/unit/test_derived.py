"""The same matrix and locks give the same bytes in every process, however it orders its sets."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.derived import derived, one_of_each_kind, order
from torchbake.matrix.project import Project

Run = Callable[..., list[str]]


@pytest.fixture
def other(pythons: Run) -> dict[str, Any]:
    """Return the results of a process with another hash seed."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    (output,) = pythons(["-m", "tests.unit.derived"], {"PYTHONHASHSEED": seed})
    results: dict[str, Any] = json.loads(output)
    return results


def test_two_processes_derive_the_same_bytes(other: dict[str, Any], project: Project) -> None:
    assert other["order"] != order(), "both processes order their sets alike: this would prove nothing"
    assert {name for name, _ in other["derived"]} >= {
        "bake file",
        *(f"{what} {spec.id}" for spec in one_of_each_kind(project) for what in ("dockerfile", "inputs", "tags")),
    }
    assert other["derived"] == [list(pair) for pair in derived()]
