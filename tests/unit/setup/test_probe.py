"""The facts about a machine that setup collects."""

from pathlib import Path

import pytest

from torchbake.setup import probe
from torchbake.setup.paths import EnginePaths


@pytest.mark.usefixtures("own_processes")
def test_a_machine_whose_apt_fails_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setup needs apt's mirror alone, and an engine that runs needs no apt."""
    program = tmp_path / "apt-config"
    program.write_text("#!/bin/sh\necho 'E: Syntax error /etc/apt/apt.conf.d/01proxy:1' >&2\nexit 100\n")
    program.chmod(0o755)
    variables = {"PATH": str(tmp_path), "TORCHBAKE_APT_MIRROR": "http://mirror.example/debian"}
    monkeypatch.setattr(probe, "knock", lambda socket: "dead")
    paths = EnginePaths.from_env({"TORCHBAKE_ENGINE_DIR": "/nowhere/engine"})
    assert probe.look(paths, variables).mirror == "http://mirror.example/debian"
