"""Releases of torch that deserve a row, and the reasons against the others."""

from typing import Any

import pytest
from packaging.version import Version

from tests.unit.conftest import expand_text
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.proposals import Proposal, TorchRelease, is_too_old, proposal_of

SPECS = expand_text().specs  # 2.13.0 for the CPU; 2.10.0 and 2.9.1 for CUDA 12.8, on Python 3.11 and 3.13


def release(version: str, accelerator: str = "", **more: Any) -> TorchRelease:
    """A release whose CUDA is not known yet if no accelerator is named."""
    parsed = parse_accelerator(accelerator) if accelerator else None
    return TorchRelease(**{"version": Version(version), "accelerator": parsed, "pythons": ("3.11",)} | more)


def judged(one: TorchRelease, *others: TorchRelease) -> Proposal | str:
    return proposal_of(one, SPECS, [one, *others])


@pytest.mark.parametrize(
    ("one", "replaces"),
    [
        (release("2.11.0", "cuda12.8"), ""),
        (release("2.11.0", "cuda13.0"), ""),
        (release("2.11.0"), ""),
        (release("2.10.0", "cuda13.0"), ""),
        (release("2.10.1", "cuda12.8"), "2.10.0"),
        (release("2.9.2", "cuda12.8"), "2.9.1"),
        (release("2.14.0", "cpu"), ""),
        (release("2.13.1", "cpu"), "2.13.0"),
    ],
    ids=lambda value: f"{value.version} {value.accelerator}" if isinstance(value, TorchRelease) else value,
)
def test_newer_releases_are_proposed(one: TorchRelease, replaces: str) -> None:
    answer = judged(one)
    assert isinstance(answer, Proposal), answer
    assert (answer.release, answer.replaces) == (one, replaces)
    assert answer.reason


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (release("2.8.0"), "older than the oldest of the matrix, 2.9.1"),
        (release("2.12.0", "cpu"), "older than the oldest of the matrix, 2.13.0"),
        (release("2.9.0"), "older than the oldest"),
        (release("2.10.0"), "in the matrix"),
        (release("2.10.0", "cuda12.8"), "in the matrix"),
        (release("2.9.1", "cuda12.6"), "another CUDA"),
        (release("2.11.0rc1"), "pre-release"),
        (release("2.11.0", pythons=()), "no wheel for Python 3.11 or 3.13"),
        (release("2.14.0", "cpu", pythons=("3.13",)), "no wheel for Python 3.11 on"),
        (release("2.11.0", problem="yanked: broken"), "yanked: broken"),
        (release("2.10.1", "cuda13.0"), "its wheels are for cuda13.0, and the row is for cuda12.8"),
        (release("2.11.0", "cuda12.6"), "older than cuda12.8"),
    ],
    ids=lambda value: f"{value.version} {value.accelerator}" if isinstance(value, TorchRelease) else None,
)
def test_other_releases_have_a_reason(one: TorchRelease, reason: str) -> None:
    answer = judged(one)
    assert isinstance(answer, str)
    assert reason in answer


def test_the_newest_sound_patch_of_a_minor_version_is_proposed() -> None:
    old, new = release("2.11.0"), release("2.11.1")
    assert judged(old, new) == "2.11.1 is newer"
    for bad in (release("2.11.1", problem="yanked: x"), release("2.11.1", pythons=()), release("2.11.1rc1")):
        assert isinstance(judged(old, bad), Proposal)
    assert isinstance(judged(old, release("2.11.1", "cpu")), Proposal), "a release for the CPU is no release for CUDA"


def test_a_gap_in_the_matrix_is_left_to_people() -> None:
    specs = [spec for spec in SPECS if "2.9.1" not in spec.id] + [*expand_text().specs[-3:-1]]
    answer = proposal_of(release("2.9.3"), [*specs], [release("2.9.3")])
    assert isinstance(answer, Proposal), "2.9 is in the matrix"
    answer = proposal_of(release("2.12.0", "cpu"), SPECS, [])
    assert isinstance(answer, str)
    assert is_too_old(answer)


def test_a_matrix_without_cuda_gets_none() -> None:
    specs = [spec for spec in SPECS if "cuda" not in spec.id]
    answer = proposal_of(release("2.20.0"), specs, [])
    assert isinstance(answer, str)
    assert "no row for CUDA" in answer
