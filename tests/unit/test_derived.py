"""The same matrix and locks give the same bytes in every process, however it orders its sets."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.derived import derived
from torchbake.matrix.project import Project

Run = Callable[..., list[str]]


@pytest.fixture
def seeded(pythons: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results of two processes with different hash seeds."""
    one, other = pythons(["-m", "tests.unit.derived"], {"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    return json.loads(one), json.loads(other)


def test_two_processes_derive_the_same_bytes(seeded: tuple[dict[str, Any], dict[str, Any]], project: Project) -> None:
    one, other = seeded
    assert one["order"] != other["order"], "both processes order their sets alike: this would prove nothing"
    assert {name for name, _ in one["derived"]} >= {
        "bake file",
        *(f"{what} {spec.id}" for spec in project.expansion.specs for what in ("dockerfile", "inputs", "tags")),
    }
    assert one["derived"] == other["derived"]
    assert one["derived"] == [list(pair) for pair in derived()]  # the same in this process
