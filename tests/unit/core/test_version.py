"""Which torchbake this is."""

import subprocess
from typing import Any

import pytest

from torchbake.core import version as module
from torchbake.core.version import UNKNOWN, version


def git(monkeypatch: pytest.MonkeyPatch, answer: "subprocess.CompletedProcess[str] | Exception") -> None:
    def run(*_: Any, **__: Any) -> "subprocess.CompletedProcess[str]":
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "__version__", UNKNOWN)
    monkeypatch.setattr(subprocess, "run", run)


def test_an_installed_one_has_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    git(monkeypatch, AssertionError("nobody needs git here"))
    monkeypatch.setattr(module, "__version__", "1.2.3")
    assert version() == "1.2.3"


def test_a_checkout_is_named_by_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    git(monkeypatch, subprocess.CompletedProcess([], 0, stdout="0123456789ab\n"))
    assert version() == "0+g0123456789ab"


NO_REPOSITORY = subprocess.CompletedProcess[str]([], 128, stdout="")


@pytest.mark.parametrize("answer", [NO_REPOSITORY, FileNotFoundError("git"), subprocess.TimeoutExpired("git", 1)])
def test_without_git_it_is_a_checkout(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    git(monkeypatch, answer)
    assert version() == UNKNOWN
