"""A builder's uv: of the wheel that was handed over, where the lock has its hash, else by Python's pip."""

import ensurepip
import hashlib
import os
import runpy
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from torchbake.core.paths import TOOLKIT

PIP = (
    "import json, pathlib, sys\npathlib.Path(sys.argv[-1]).write_text(json.dumps(sys.argv[1:]))\nraise SystemExit(7)\n"
)


class Builder:
    """The inputs of a builder's step: a lock, a folder of wheels, and a Python whose pip records its arguments."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lock, self.wheels, self.target = folder / "builder.lock", folder / "wheels", folder / "opt/uv"
        self.pips, self._monkeypatch = folder / "pips", monkeypatch
        self.wheels.mkdir()
        self.lock.write_text("uv==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
        pip = self.pips / "pip-1-py3-none-any.whl"
        pip.mkdir(parents=True)
        (pip / "pip.py").write_text(PIP)
        self.target.parent.mkdir()

    def wheel(self, *, program: str = "uv-1.0.data/scripts/uv", locked: bool = True) -> Path:
        path = self.wheels / "uv-1.0-py3-none-manylinux_2_28_x86_64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("uv/__init__.py", "")
            archive.writestr(program, b"\x7fELF uv")
        if locked:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            self.lock.write_text(self.lock.read_text().rstrip() + f" \\\n    --hash=sha256:{digest}\n")
        return path

    def install(self) -> int | str | None:
        """Run the step; return its exit code or its error."""
        words = ("install_uv.py", str(self.lock), str(self.wheels), str(self.target))
        with self._monkeypatch.context() as step:
            step.delitem(sys.modules, "pip", raising=False)
            step.setattr(sys, "argv", [*words])
            step.setattr(sys, "path", [*sys.path])
            step.setattr(os, "environ", {})
            step.setattr(sysconfig, "get_config_var", {"WHEEL_PKG_DIR": str(self.pips)}.get)
            try:
                runpy.run_path(str(TOOLKIT / "layers/install_uv.py"), run_name="__main__")
            except SystemExit as end:
                return end.code
        return 0


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    return Builder(tmp_path, monkeypatch)


def test_the_wheel_that_was_handed_over_is_unpacked(builder: Builder) -> None:
    builder.wheel()
    assert builder.install() == 0
    program = builder.target / "bin/uv"
    assert program.read_bytes() == b"\x7fELF uv"
    assert program.stat().st_mode & 0o777 == 0o755
    assert (builder.target.parent / "pip.whl").readlink() == builder.pips / "pip-1-py3-none-any.whl"


@pytest.mark.parametrize("there", [False, True])
def test_without_the_locked_wheel_pythons_own_pip_is_used(builder: Builder, *, there: bool) -> None:
    if there:
        builder.wheel(locked=False)
    assert builder.install() == 7
    output = builder.target.read_text()
    assert output.startswith(f'["install", "--require-hashes", "-r", "{builder.lock}"')


def test_pip_is_run_from_its_wheel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pip"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["install_uv.py"])
    monkeypatch.setenv("PIP_ROOT_USER_ACTION", "warn")  # as it was, afterwards
    monkeypatch.setattr(sys, "path", [*sys.path])
    pip = runpy.run_path(str(TOOLKIT / "layers/install_uv.py"))["pip"]
    with pytest.raises(SystemExit) as end:
        pip("--version")
    assert not end.value.code
    output = capsys.readouterr().out
    assert output.startswith(f"pip {ensurepip.version()} from ")
    assert ".whl" in output


def test_a_wheel_without_the_program_is_refused(builder: Builder) -> None:
    wheel = builder.wheel(program="uv-1.0.data/scripts/uvx")
    assert builder.install() == f"{wheel.name} has no program uv."
    assert not builder.target.exists()


def test_a_python_without_a_pip_is_refused(builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (builder.pips / "pip-1-py3-none-any.whl").rename(tmp_path / "elsewhere")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert str(builder.install()).startswith(f"{sys.executable} has no pip")
