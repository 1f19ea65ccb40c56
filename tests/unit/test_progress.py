"""A command whose work takes long says on stderr that it goes on, and writes nothing but its result to stdout."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.unit.builds import RUNTIME, small_project
from torchbake import cli
from torchbake.build import base_image, bootstrap
from torchbake.commands import _narrow, lock
from torchbake.commands import base as base_command
from torchbake.errors import BaseError, LockError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.spec import Spec
from torchbake.release.due import DueFinding
from torchbake.ui import console, ticker
from torchbake.ui.output_mode import OutputMode, set_mode

LONG = 0.3  # seconds


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Any]]:
    """Runs a command on a small project, with short times of the ticker: its exit code, stdout and stderr."""
    for name, seconds in (("TICK", 0.01), ("WORTH_A_LINE", 0.05), ("HEARTBEAT", 0.1)):
        monkeypatch.setattr(ticker, name, seconds)
    monkeypatch.setattr(console, "err", console.err)  # --progress=rich replaces it
    project = small_project(tmp_path / "project")

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return cli.main([*words, "--matrix", str(project.document.path)]), *capsys.readouterr()

    yield call
    set_mode(OutputMode())


def test_a_bootstrap_is_visible(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> NoReturn:
        time.sleep(LONG)
        raise BaseError("no mirror")

    monkeypatch.setattr(base_command, "read_apt_config", AptConfig)
    monkeypatch.setattr(bootstrap, "bootstrap_problem", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/mmdebstrap")
    monkeypatch.setattr(bootstrap, "_command", lambda *_: [])
    monkeypatch.setattr(bootstrap, "_run", slow)
    monkeypatch.setattr(base_image, "_from_registry", lambda *_, **__: None)
    code, out, err = run("base", "cpu", "--source", "bootstrap", "--refresh")
    assert (code, out) == (BaseError.exit_code, "")
    assert "debian12: bootstrapping bookworm by mmdebstrap …" in err
    assert "still: debian12: bootstrapping" in err
    assert "still" not in run("base", "cpu", "--source", "bootstrap", "--refresh", "--quiet")[2]


def test_a_resolution_is_visible(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> NoReturn:
        time.sleep(LONG)
        raise LockError("no index")

    monkeypatch.setattr(lock, "lock_image", slow)
    code, out, err = run("lock", RUNTIME)
    assert (code, out) == (LockError.exit_code, "")
    assert f"still: locking {RUNTIME}, 1 of 1" in err


def test_json_is_alone_on_stdout(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: object, specs: tuple[Spec, ...]) -> dict[str, DueFinding]:
        time.sleep(LONG / 3)
        return {spec.id: DueFinding(due=True, reason="new") for spec in specs}

    monkeypatch.setattr(_narrow.DueQuestion, "findings", slow)
    for form in ("plain", "rich", "auto"):
        words = ("list", "cpu", "--due", "--registry", "ghcr.io/acme", "--format", "json", "--progress", form)
        code, out, err = run(*words)
        assert code == 0
        assert json.loads(out)["images"]
        assert "comparing with ghcr.io/acme" in err, form
