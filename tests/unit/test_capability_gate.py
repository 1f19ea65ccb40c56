"""A command that this engine cannot run ends before its first slow step: no lock, no process, no file."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.builds import small_project
from tests.unit.engines import Daemon, MemoryEngine
from torchbake import cli
from torchbake.commands import _debian_lock, build, prove, reproduce, update
from torchbake.errors import EngineError

OLD, PODMAN = "builds need 23.0 or later", "does not keep the published layers"


def engine_of(words: str) -> MemoryEngine:
    engine = Daemon().engine
    usual = engine.capabilities
    other = {"version": "20.10.24"} if words == OLD else {"kind": "Podman", "version": "5.8.6", "store": "podman"}
    engine.capabilities = replace(usual, **other)  # type: ignore[arg-type]
    return engine


@pytest.mark.parametrize(
    ("module", "command"),
    [
        (build, ("build", "cpu")),
        (build, ("build", "cpu", "--dry-run")),
        (build, ("build", "cpu", "--pull")),
        (reproduce, ("reproduce", "cpu")),
        (update, ("update", "cpu")),
        (_debian_lock, ("lock", "all", "--debian")),
        (prove, ("prove", "cpu", "--registry", "127.0.0.1:5000/team")),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_an_unfit_engine_ends_a_command_before_any_work(
    module: ModuleType, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    project, words = small_project(tmp_path), PODMAN if module is prove else OLD
    engine = engine_of(words)
    monkeypatch.setattr(module, "connect", lambda: engine)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert cli.main([*command, "--matrix", str(project.root / "matrix.yaml")]) == EngineError.exit_code
    assert words in " ".join(capsys.readouterr().err.split())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
