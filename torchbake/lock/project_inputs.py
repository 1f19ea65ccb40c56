"""The inputs of a lock that follows from a project's lock: the files that decide it, by their digest."""

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from packaging.utils import canonicalize_name

from torchbake.core.digest import digest
from torchbake.core.files import read_text
from torchbake.errors import LockError
from torchbake.matrix.spec import ProjectSpec

PYPROJECT = "pyproject.toml"
Kind: TypeAlias = Literal["uv", "pylock", "requirements", "pyproject"]
# Tables and keys of a pyproject.toml that decide packages, or how the project's own packages are built.
_TABLES = ("build-system", "dependency-groups")
_PROJECT_KEYS = ("name", "requires-python", "dependencies", "optional-dependencies")


def kind_of(lock: str) -> Kind:
    """Return the kind of a lock by its file name."""
    name = PurePosixPath(lock).name
    if name == "uv.lock":
        return "uv"
    if name == PYPROJECT:
        return "pyproject"
    return "pylock" if name.startswith("pylock.") and name.endswith(".toml") else "requirements"


def project_digest(root: Path, project: ProjectSpec, packages: Iterable[str]) -> str:
    """Return the digest of a project's lock, and of the dependencies and build systems of each pyproject.toml.

    ``root`` is the matrix's folder. ``packages`` are the folders of the project's own packages, relative to the
    project. Raises LockError if a file cannot be read.
    """
    folder = PurePosixPath(project.folder)
    folders = {".", *packages} if follows_pyproject(project) else {*packages}
    texts = [_of_pyproject(root, folder / each / PYPROJECT) for each in sorted(folders)]
    if kind_of(project.lock) != "pyproject":
        texts.append(read_project_file(root, project.lock_path))
    return digest(texts)


def follows_pyproject(project: ProjectSpec) -> bool:
    """Return whether a project's pyproject.toml decides what its lock must have."""
    return kind_of(project.lock) in ("uv", "pyproject")


def read_project_file(root: Path, path: str) -> str:
    """Read a text file of a project; ``path`` is relative to the matrix's folder. Raises LockError."""
    hint = "Correct `project:` of the row, or lock the project: uv lock"
    if not Path(os.path.realpath(root / path)).is_relative_to(root.resolve()):  # resolve() raises for links in a circle
        raise LockError(f"{path}: is a link to a file outside of the matrix's folder.", hint="Put the file there.")
    try:
        return read_text(root / path)
    except (FileNotFoundError, NotADirectoryError):
        raise LockError(f"{path}: there is no such file.", hint=hint) from None
    except UnicodeDecodeError as error:
        raise LockError(f"{path}: is not UTF-8 text (byte {error.start}).", hint=hint) from None
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}.", hint=hint) from None


def read_toml(root: Path, path: str) -> dict[str, Any]:
    """Read a TOML file of a project, as `read_project_file` does. Raises LockError with the line."""
    try:
        return tomllib.loads(read_project_file(root, path))
    except tomllib.TOMLDecodeError as error:
        raise LockError(f"{path}: is not TOML: {error}.", hint="Correct it.") from None


def uv_settings(pyproject: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table ``tool.uv`` of a pyproject.toml; empty if it is no table."""
    tool = pyproject.get("tool")
    table = tool.get("uv") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else {}


def uv_indexes(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tables ``index`` of the table ``tool.uv`` that have an address."""
    indexes = settings.get("index")
    tables = (each for each in indexes if isinstance(each, dict)) if isinstance(indexes, list) else ()
    return [each for each in tables if isinstance(each.get("url"), str)]


def is_package(pyproject: Mapping[str, Any]) -> bool:
    """Return whether a project is built and installed, by its pyproject.toml: with a build system, if uv may use it."""
    return bool(uv_settings(pyproject).get("package", "build-system" in pyproject))


def package_name(pyproject: Mapping[str, Any]) -> str:
    """Return the normal form of the name in a pyproject.toml; empty if it is in another file."""
    tool = pyproject.get("tool")
    tables = (pyproject.get("project"), tool.get("poetry") if isinstance(tool, dict) else None)
    names = (table.get("name") for table in tables if isinstance(table, dict))
    return next((canonicalize_name(name) for name in names if isinstance(name, str)), "")


def _of_pyproject(root: Path, path: PurePosixPath) -> str:
    if not (root / path).exists():
        return ""
    document = read_toml(root, str(path))
    table = document.get("project")
    decisive = {key: document.get(key) for key in _TABLES} | {"uv": uv_settings(document)}
    decisive |= {key: table.get(key) for key in _PROJECT_KEYS if isinstance(table, dict)}
    return json.dumps(decisive, sort_keys=True, default=str)
