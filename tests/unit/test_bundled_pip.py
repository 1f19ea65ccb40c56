"""The pip that Python brings is run as it is, and its lack is said."""

import ensurepip
import runpy
import sys
import sysconfig
from pathlib import Path

import pytest

from torchbake.core.paths import TOOLKIT


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pip"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["pip", *words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOLKIT / "layers/bundled_pip.py"), run_name="__main__")
    return ended.value.code


def test_it_is_run_from_its_wheel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(monkeypatch, "--version")
    said = capsys.readouterr().out
    assert said.startswith(f"pip {ensurepip.version()} from ")
    assert ".whl" in said


def test_a_folder_of_the_distribution_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "pip-1-py3-none-any.whl"
    wheel.mkdir()
    (wheel / "pip.py").write_text("raise SystemExit(7)\n")
    monkeypatch.setattr(sysconfig, "get_config_var", {"WHEEL_PKG_DIR": str(tmp_path)}.get)
    assert run(monkeypatch) == 7


def test_a_python_without_one_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ensurepip, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(sysconfig, "get_config_var", {"WHEEL_PKG_DIR": str(tmp_path)}.get)
    assert str(run(monkeypatch)).startswith(f"{sys.executable} brings no pip")
