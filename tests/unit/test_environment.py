"""The Python environment in which nox runs the commands of a checkout."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchbake import environment


def test_no_variable_of_uv_changes_which_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mirror")
    started: list[dict[str, str]] = []

    def run(words: Any, *, env: dict[str, str], **_: object) -> "subprocess.CompletedProcess[bytes]":
        started.append(env)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    environment._install(tmp_path / "environment", ["pydantic"], 0)
    assert started
    for env in started:
        assert "UV_RESOLUTION" not in env
        assert env["UV_DEFAULT_INDEX"] == "https://mirror"
    assert capsys.readouterr().err.count("UV_RESOLUTION") == 1
