"""The program of a build that makes the layer of a user's project. uv is a function that builds and unpacks wheels."""

import compileall
import subprocess
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layers.wheels import __main__ as wheels
from layers.wheels.project import BuiltPackage, locked_packages
from layers.wheels.records import records
from layers.wheels.tree import EPOCH
from tests.wheels import write_wheel

PYPROJECT = '[project]\nname = "Acme.Trainer"\nversion = "1.5"\n'
COMPUTED = '[project]\nname = "acme-trainer"\ndynamic = ["version"]\n'  # by version control
LOCK = '[[package]]\nname = "acme-trainer"\nversion = "{}"\nsource = {{ editable = "." }}\n'
OUTPUT = """\
Building wheel...
Traceback (most recent call last):
  File "<string>", line 8, in <module>
ModuleNotFoundError: No module named 'absent'
error: Failed to build `/project`
  cause: The build backend returned an error
"""
FILES = {"pyproject.toml": PYPROJECT, "src/acme/__init__.py": "x = 1\n", "src/acme/__pycache__/left.pyc": ""}


@dataclass(kw_only=True)
class Uv:
    """A uv in memory. With ``code`` a build fails. ``environments`` are the variables of its calls.

    With ``dated`` it records the time of a wheel.
    """

    code: int = 0
    dated: bool = True
    environments: list[Mapping[str, str]] = field(default_factory=list)

    def run(self, words: list[str], *, env: Mapping[str, str], **_: object) -> SimpleNamespace:
        self.environments.append(env)
        if words[1] == "build":
            self._build(Path(words[words.index("--out-dir") + 1]), Path(words[-1]), env)
            return SimpleNamespace(returncode=self.code, stdout=OUTPUT if self.code else "")
        assert {"--no-deps", "--no-index"} < {*words}
        wheels, site = Path(words[words.index("--find-links") + 1]), site_of(Path(words[words.index("--python") + 1]))
        for pin in words[words.index("--python") + 2 :]:
            (wheel,) = wheels.glob(f"{pin.replace('==', '-')}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            info = f"{pin.replace('==', '-')}.dist-info"
            if self.dated:
                (site / info / "uv_cache.json").write_text("{}")
                with (site / info / "RECORD").open("a") as record:
                    record.write(f"{info}/uv_cache.json,,\n")
        return SimpleNamespace(returncode=0, stdout="")

    def _build(self, target: Path, folder: Path, env: Mapping[str, str]) -> None:
        text = (folder / "pyproject.toml").read_text() if (folder / "pyproject.toml").exists() else ""
        version = tomllib.loads(text).get("project", {}).get("version")
        files = {f"acme/{path.name}": path.read_bytes() for path in sorted((folder / "src/acme").rglob("*.py"))}
        write_wheel(target, "acme_trainer", version or env["PDM_BUILD_SCM_VERSION"], files, tag="py3-none-any")


def site_of(python: Path) -> Path:
    return python.parent.parent / "lib/python3.11/site-packages"


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    """A build with an environment for the image and one with build requirements."""
    uv = Uv()
    compile_dir: Any = compileall.compile_dir

    def compile_here(*folder: Path, **options: Any) -> bool:
        return bool(compile_dir(*folder, **{**options, "workers": 1}))

    monkeypatch.setattr(wheels, "MOUNTS", tmp_path / "run")
    monkeypatch.setattr(wheels, "PROJECT", tmp_path / "project")
    monkeypatch.setattr(subprocess, "run", uv.run)
    monkeypatch.setattr(compileall, "compile_dir", compile_here)
    (tmp_path / "venv/lib/python3.11/site-packages").mkdir(parents=True)
    (tmp_path / "build/bin").mkdir(parents=True)
    (tmp_path / "build/bin/python").touch()
    return uv


def make(folder: Path, *, files: Mapping[str, str] = FILES, lock: str = LOCK.format("1.5"), package: str = ".") -> Path:
    """Run the program as a build does, and return the folder of the installed packages."""
    for path, text in files.items():
        number, name = (1, "pyproject.toml") if path == "pyproject.toml" else (2, "src")
        place = folder / f"run/own-{number}{path.removeprefix(name)}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    (folder / "run/own-3").write_text(lock)
    words = ["project", str(folder / "venv"), "--build", str(folder / "build"), "--lock"]
    wheels.main([*words, "--files", "pyproject.toml", "src", "--packages", package])
    return folder / "venv/lib/python3.11/site-packages"


@pytest.mark.parametrize("dated", [True, False])
def test_a_project_is_built_and_installed(tmp_path: Path, uv: Uv, dated: bool) -> None:
    uv.dated = dated
    site = make(tmp_path)
    assert (site / "acme/__init__.py").read_text() == "x = 1\n"
    assert not (tmp_path / "project/src/acme/__pycache__").exists()
    ((_, rows),) = records(site)
    assert rows == sorted(rows)
    assert not list(site.rglob("uv_cache.json")), "it has the time of a build"
    (compiled,) = (site / "acme/__pycache__").iterdir()
    assert f"{site}/acme/__init__.py".encode() in compiled.read_bytes()
    assert {path.stat().st_mtime for path in (tmp_path / "venv").rglob("*")} == {EPOCH}


def test_a_build_has_no_network_no_time_and_no_chance(tmp_path: Path, uv: Uv) -> None:
    make(tmp_path)
    expected = {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": str(EPOCH)}
    for environment in uv.environments:
        assert {name: environment[name] for name in expected} == expected


def test_a_computed_version_is_the_locked_one_or_a_constant(tmp_path: Path, uv: Uv) -> None:
    files = {**FILES, "pyproject.toml": COMPUTED}
    for lock, version in ((LOCK.format("2.1"), "2.1"), ("numpy==2.4.6\n-e .\n", "0.0.0")):
        make(tmp_path, files=files, lock=lock)
        assert uv.environments[-2]["SETUPTOOLS_SCM_PRETEND_VERSION"] == version
        assert (tmp_path / f"venv/lib/python3.11/site-packages/acme_trainer-{version}.dist-info").is_dir()


def test_a_package_with_a_setup_py_alone_is_built(tmp_path: Path, uv: Uv) -> None:
    lock = LOCK.format("2.1").replace('"."', '"src/old"')
    files = {**FILES, "src/old/setup.py": "", "src/old/src/acme/__init__.py": "y = 2\n"}
    site = make(tmp_path, files=files, lock=lock, package="src/old")
    assert (site / "acme/__init__.py").read_text() == "y = 2\n"


def test_what_cannot_be_built_is_one_sentence(tmp_path: Path, uv: Uv) -> None:
    core = LOCK.format("1.5").replace('"."', '"packages/core"')
    cases: tuple[tuple[int, dict[str, Any], str], ...] = (
        (1, {}, "the project cannot be built: ModuleNotFoundError: No module named 'absent'. "),
        (0, {"lock": LOCK.format("1.6")}, "its wheel is acme_trainer 1.5, but the project's lock has acme-trainer 1.6"),
        (0, {"lock": LOCK.format("1.5").replace("acme-", "other-")}, "the project's lock has other-trainer 1.5"),
        (0, {"files": {**FILES, "pyproject.toml": "[project"}}, "its pyproject.toml cannot be read"),
        (0, {"lock": core, "package": "packages/core"}, "packages/core: it has no pyproject.toml among the files"),
    )
    for code, changes, words in cases:
        uv.code = code
        with pytest.raises(SystemExit) as caught:
            make(tmp_path, **changes)
        assert words in str(caught.value)
        assert str(caught.value).startswith("error: the project"), "`torchbake build` shows such a line as the cause"


def test_the_locked_packages_that_are_folders() -> None:
    uv_lock = """
        [[package]]
        name = "core"
        version = "1.0"
        source = { editable = "packages/core/" }
        [[package]]
        name = "beside"
        version = "2.0"
        source = { directory = "../beside" }
        [[package]]
        name = "root"
        source = { virtual = "." }
        [[package]]
        name = "numpy"
        version = "2"
        source = { registry = "https://pypi.org/simple" }
    """
    pylock = '[[packages]]\nname = "core"\n[packages.directory]\npath = "./packages/core"\n'
    for text, expected in (
        (
            uv_lock,
            {
                "packages/core": BuiltPackage(name="core", version="1.0"),
                "../beside": BuiltPackage(name="beside", version="2.0"),
            },
        ),
        (pylock, {"packages/core": BuiltPackage(name="core")}),
        ("numpy==2.4.6\n-e .\n", {}),
    ):
        assert locked_packages(text) == expected
