"""The version of torchbake, and pip's requirement for the same version."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchbake.core import version as module
from torchbake.core.version import UNKNOWN, requirement, tag, version
from torchbake.errors import UsageError


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the file of an old build in it."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(module, "CHECKOUT", True)
    monkeypatch.setattr(module, "TOOLKIT", tmp_path)
    monkeypatch.setattr(module, "__version__", "1.2.3")
    return tmp_path


def git(monkeypatch: pytest.MonkeyPatch, answer: "subprocess.CompletedProcess[bytes] | Exception") -> None:
    def run(*_: Any, **__: Any) -> "subprocess.CompletedProcess[bytes]":
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(subprocess, "run", run)


def test_an_installed_one_has_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    git(monkeypatch, AssertionError("nobody needs git here"))
    monkeypatch.setattr(module, "CHECKOUT", False)
    assert version() == "1.2.3"


def test_a_checkout_is_named_by_its_commit(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    git(monkeypatch, subprocess.CompletedProcess([], 0, stdout=b"0123456789ab\n", stderr=b""))
    assert version() == "0+g0123456789ab"


def test_a_copy_in_another_repository_ignores_that_ones_commit(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    git(monkeypatch, subprocess.CompletedProcess([], 0, stdout=b"0123456789ab\n", stderr=b""))
    (checkout / ".git").rmdir()
    assert version() == UNKNOWN


NO_REPOSITORY = subprocess.CompletedProcess(
    [], 128, stdout=b"", stderr=b"fatal: not a git repository (or any of the parent directories): .git"
)


def test_a_git_folder_without_a_repository_is_an_error(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    git(monkeypatch, NO_REPOSITORY)
    with pytest.raises(UsageError, match="finds no repository at"):
        version()


@pytest.mark.parametrize("answer", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 1)])
def test_without_git_it_is_a_checkout(answer: Any, monkeypatch: pytest.MonkeyPatch, checkout: Path) -> None:
    git(monkeypatch, answer)
    assert version() == UNKNOWN


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1.2.3", "torchbake[nox]==1.2.3"),
        ("1.2.3rc1", "torchbake[nox]==1.2.3rc1"),
        ("0+g0123456789ab", "torchbake[nox] @ git+https://github.com/torchbake/torchbake@0123456789ab"),
        ("0.1.dev3+gabcdef0.d20260101", "torchbake[nox] @ git+https://github.com/torchbake/torchbake@abcdef0"),
        (UNKNOWN, "torchbake[nox] @ git+https://github.com/torchbake/torchbake"),
        ("0.1.dev3", "torchbake[nox] @ git+https://github.com/torchbake/torchbake"),
    ],
)
def test_pip_gets_a_release_or_a_commit_never_a_bare_name(name: str, text: str) -> None:
    assert requirement(name, "nox") == text
    assert requirement(name) == text.replace("[nox]", "")
    assert tag(name) == (f"v{name}" if "==" in text else "")
