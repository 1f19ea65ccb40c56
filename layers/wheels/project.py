"""Builds the packages of a user's project and installs them, without a network.

The build requirements are in an environment of their own, so `uv build` runs without isolation. An image gets only what
the wheels of the packages contain.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any

from .install import UV
from .names import canonical_name
from .records import records, sorted_rows
from .tree import EPOCH, compile_bytecode, normalise
from .trim import read_trim, trim

# Version control is not in a build, and no image may depend on the time of its build. The variables of setuptools-scm
# (also hatch-vcs) and PDM: https://setuptools-scm.readthedocs.io/en/latest/overrides/,
# https://backend.pdm-project.org/metadata/#dynamic-version-from-scm, https://reproducible-builds.org/specs/source-date-epoch/
_VERSION_VARIABLES = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PDM_BUILD_SCM_VERSION")
_NO_VERSION = "0.0.0"
_REASON = re.compile(r"\s*(?:[\w.]*(?:Error|Exception)|error): ")  # of Python, and of uv
# For executors that ignore `RUN --network=none`, as buildah 1.28: nothing listens on the port 9 of a build.
_NO_PROXY = dict.fromkeys(("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")


@dataclass(frozen=True, kw_only=True)
class BuiltPackage:
    """The name and the version of a package; the version is empty if no file declares it."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def make_environment(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)


def copy_files(names: Sequence[str], mounts: Path, project: Path) -> None:
    """Copy the project's files from ``mounts``, where the first is ``own-1``, to their names below ``project``."""
    for number, name in enumerate(names, 1):
        source, target = mounts / f"own-{number}", project / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=ignore)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    normalise(project)


def locked_packages(text: str) -> dict[str, BuiltPackage]:
    """Return the packages of a uv.lock or a pylock.toml (PEP 751) that are folders, by the folder."""
    try:
        lock = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a requirements file, which names no versions of folders
        return {}
    packages: dict[str, BuiltPackage] = {}
    for entry in (*lock.get("package", ()), *lock.get("packages", ())):
        source = entry.get("source") or entry.get("directory") or {}
        folder = next((source[key] for key in ("editable", "directory", "path") if key in source), None)
        if isinstance(folder, str):
            packages[str(PurePosixPath(folder))] = BuiltPackage(name=entry["name"], version=entry.get("version", ""))
    return packages


def build(project: Path, folder: str, locked: BuiltPackage | None, python: Path, wheels: Path) -> BuiltPackage:
    """Build the wheel of a package into ``wheels``. Exit if the build fails, or if the lock has another package."""
    declared_version = _declared_version(project / folder / "pyproject.toml", folder)
    command = [str(UV), "build", "--wheel", "--no-build-isolation", "--force-pep517", "--python", str(python)]
    environment = _environment((locked.version if locked else "") or _NO_VERSION)
    with tempfile.TemporaryDirectory() as target:
        code, reason = _run([*command, "--out-dir", target, str(project / folder)], environment)
        built_wheels = [*Path(target).glob("*.whl")]
        if code or len(built_wheels) != 1:
            sys.exit(
                f"error: {_where(folder)} cannot be built: {reason or 'its backend made no wheel'}. A build has the "
                "files that `project: {files: ...}` names in the row, the locked build requirements, and no network. "
                "Add missing files there, and missing requirements to [build-system] in pyproject.toml."
            )
        package = _package_of(built_wheels[0])
        shutil.copy(built_wheels[0], wheels)
    # A version that pyproject.toml does not declare is computed at each build.
    expected = locked and BuiltPackage(name=locked.name, version=locked.version if declared_version else "")
    if expected and not _fits(package, expected):
        sys.exit(
            f"error: {_where(folder)}: its wheel is {package}, but the project's lock has {expected}. "
            "Lock the project again, such as by: uv lock"
        )
    return package


def _fits(package: BuiltPackage, expected: BuiltPackage) -> bool:
    same_name = canonical_name(package.name) == canonical_name(expected.name)
    return same_name and expected.version in ("", package.version)


def install_packages(packages: Sequence[BuiltPackage], wheels: Path, venv: Path) -> None:
    """Install built wheels into a virtual environment without other packages."""
    pins = [f"{package.name}=={package.version}" for package in packages]  # a path would be recorded in the image
    command = [str(UV), "pip", "install", "--no-deps", "--no-index", "--find-links", str(wheels)]
    code, reason = _run([*command, "--python", str(venv / "bin/python"), *pins], _environment(_NO_VERSION))
    if code:
        sys.exit(f"error: {', '.join(pins)} cannot be installed: {reason}.")
    site = next((venv / "lib").glob("python3.*/site-packages"))
    trim(site, read_trim(None), wheels)
    for record, rows in records(site):
        record.write_text(sorted_rows(rows), newline="")
    compile_bytecode(site, site)
    normalise(venv)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run uv, print its output, and return its exit code and the reason of a failure in its own words."""
    result = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    lines = result.stdout.splitlines()
    print(
        *(f"| {line}" for line in lines), sep="\n", flush=True
    )  # the mark tells these lines from a build's own errors
    reasons = [line.strip() for line in lines if _REASON.match(line)]
    return result.returncode, (reasons or [line for line in lines if line.strip()] or [""])[0].rstrip(".")


def _environment(version: str) -> dict[str, str]:
    uv = {"UV_LINK_MODE": "copy", "UV_NO_CACHE": "1", "UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "UV_OFFLINE": "1"}
    fixed = {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": str(EPOCH), "UV_PYTHON_DOWNLOADS": "never"}
    return {**os.environ, **_NO_PROXY, **uv, **fixed, **dict.fromkeys(_VERSION_VARIABLES, version)}


def _declared_version(path: Path, folder: str) -> str:
    """Return the version in a pyproject.toml; empty if it has none."""
    try:
        table: Mapping[str, Any] = tomllib.loads(path.read_text()).get("project", {})
    except FileNotFoundError:
        if path.with_name("setup.py").exists():  # setuptools builds it: https://peps.python.org/pep-0517/#source-trees
            return ""
        sys.exit(f"error: {_where(folder)}: it has no pyproject.toml among the files of `project: {{files: ...}}`.")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        sys.exit(f"error: {_where(folder)}: its pyproject.toml cannot be read: {error}.")
    return str(table.get("version", "")) if isinstance(table, Mapping) else ""


def _where(folder: str) -> str:
    return "the project" if folder == "." else f"the project's package {folder}"


def _package_of(wheel: Path) -> BuiltPackage:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(archive.read(name).decode())
    return BuiltPackage(name=fields["Name"], version=fields["Version"])
