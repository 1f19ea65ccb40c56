"""Find the lock of a project, of which `init --from` has the folder or the file."""

import posixpath
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchbake.core.files import read_text
from torchbake.errors import LockError, MatrixError, UsageError
from torchbake.lock.project_inputs import is_package, package_name, uv_settings
from torchbake.matrix.added_paths import project_folder, project_lock
from torchbake.matrix.spec import ProjectSpec
from torchbake.matrix.yaml_source import parse_document
from torchbake.projects.package_files import texts_of
from torchbake.ui.command import Command

LOCKS = ("uv.lock", "pylock.toml", "requirements.txt", "pyproject.toml")  # the first that exists counts
_CONDA = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
# Locks of other tools, with the command that writes one of `LOCKS`.
_FOREIGN = {
    "poetry.lock": "poetry export -f requirements.txt -o requirements.txt",  # of poetry-plugin-export
    "pdm.lock": "pdm export -f pylock -o pylock.toml",
    "Pipfile.lock": "pipenv requirements --hash > requirements.txt",
    "pixi.lock": "uv lock, with the PyPI packages of pixi.toml in pyproject.toml",
}


@dataclass(frozen=True, kw_only=True)
class LockPlace:
    """The folder of a project, relative to the matrix's folder, and its lock, relative to the project's folder.

    If the project is a member of a workspace, its folder is that of the workspace's root, ``member`` is the member's
    folder below, and ``package`` is the member's name.
    """

    folder: str
    lock: str
    member: str = ""
    package: str = ""

    @property
    def spec(self) -> ProjectSpec:
        return ProjectSpec(folder=self.folder, lock=self.lock, package=self.package)

    def own_files(self, name: str) -> tuple[str, ...]:
        """Return the paths that a file of the project may have, relative to its folder, the decisive one first."""
        return (f"{self.member}/{name}", name) if self.member else (name,)

    def path(self, name: str) -> str:
        """Return the path of a project's file relative to the matrix's folder, for messages."""
        return posixpath.normpath(posixpath.join(self.folder, name))


def find_lock(root: Path, start: Path) -> LockPlace:
    """Find the lock of the project ``start``: a folder, or the lock itself. ``root`` is the matrix's folder.

    Raises UsageError if the project is missing, outside of ``root``, or has no lock that torchbake reads, and LockError
    for a conda environment.
    """
    root, path = root.resolve(), start.resolve()
    try:
        is_folder = path.is_dir()
        if not is_folder and not path.exists():
            raise UsageError(f"{start}: there is no such file or folder.", hint="Name the project's folder: --from DIR")
        names = {each.name for each in path.iterdir()} if is_folder else set[str]()
    except PermissionError as error:
        raise UsageError(f"{error.filename}: permission denied.", hint="Make the project readable.") from None
    if not path.is_relative_to(root):
        raise UsageError(
            f"{start} is outside of {root}, the matrix's folder; the matrix must be beside or above the project.",
            hint=f"Name the matrix's folder: {_init(start, path if is_folder else path.parent)}",
        )
    if not is_folder:
        _refuse_other(path, start)
        return _place(root, _project_of(path, root), path)
    name = next((name for name in LOCKS if name in names), "")
    if not name or name == "pyproject.toml":
        _refuse_missing(path, start, names, has_pyproject=bool(name))
    if name == "pyproject.toml" and (workspace := _workspace_of(path)):
        return _member_place(root, workspace, path, start)
    return _place(root, path, path / name)


def _place(root: Path, folder: Path, lock: Path) -> LockPlace:
    try:
        return LockPlace(
            folder=project_folder(folder.relative_to(root).as_posix()),
            lock=project_lock(lock.relative_to(folder).as_posix()),
        )
    except ValueError as error:
        raise UsageError(f"The project's path cannot be in a matrix: {error}.", hint="Rename it, or move it.") from None


def _project_of(lock: Path, root: Path) -> Path:
    """Return the nearest folder of a lock with a pyproject.toml or Python files, not above ``root``."""
    for folder in lock.parents:
        if not folder.is_relative_to(root):
            break
        if (folder / "pyproject.toml").exists() or any(folder.glob("*.py")):
            return folder
    return lock.parent


def _refuse_other(path: Path, start: Path) -> None:
    """Raise unless a file can be a lock by its name."""
    if path.name in _FOREIGN:
        raise _foreign(start.parent, path.name)
    if path.suffix in (".yml", ".yaml"):
        raise _conda(path, start)
    if path.name not in LOCKS and path.suffix != ".txt" and not fnmatchcase(path.name, "pylock*.toml"):
        raise UsageError(
            f"{start} is no lock that torchbake reads.",
            hint="Name a uv.lock, a pylock.toml, a requirements file (*.txt) or a pyproject.toml: --from FILE",
        )


def _refuse_missing(path: Path, start: Path, names: set[str], *, has_pyproject: bool) -> None:
    """Raise for a folder without a lock, but not if it has a pyproject.toml and no lock of another tool."""
    foreign = next((name for name in _FOREIGN if name in names), "")
    if foreign:
        raise _foreign(start, foreign)
    if has_pyproject:
        return
    conda = next((name for name in _CONDA if name in names), "")
    if conda:
        raise _conda(path / conda, start / conda)
    others = sorted(
        each.relative_to(path) for each in (*path.glob("*requirements*.txt"), *path.glob("requirements/*.txt"))
    )
    others += sorted(each.relative_to(path) for each in path.glob("pylock.*.toml"))
    hint = (
        f"Name the lock: {_init(start / others[0])}" if others else "Lock the project: uv init --bare && uv add torch"
    )
    raise UsageError(f"{start}: has no {', '.join(LOCKS[:-1])} or {LOCKS[-1]}.", hint=hint)


def _workspace_of(folder: Path) -> Path | None:
    """Return the root of the uv workspace that has a folder as a member; None if there is none."""
    for parent in folder.parents:
        table = uv_settings(_pyproject(parent / "pyproject.toml")).get("workspace")
        workspace = table if isinstance(table, Mapping) else {}
        path = folder.relative_to(parent).as_posix()
        members, excluded = (texts_of(workspace.get(key)) for key in ("members", "exclude"))
        if any(fnmatchcase(path, each) for each in members) and not any(fnmatchcase(path, each) for each in excluded):
            return parent
    return None


def _member_place(root: Path, workspace: Path, folder: Path, start: Path) -> LockPlace:
    """Return the place of a member of a workspace, whose lock is at the workspace's root. Raises UsageError."""
    problem = f"{start} is a member of the uv workspace in {workspace}, whose uv.lock decides its packages"
    if not workspace.is_relative_to(root):
        hint = f"Name the workspace's folder for the matrix: {_init(start, workspace)}"
        raise UsageError(f"{problem}; the matrix must be in that folder, or above it.", hint=hint)
    if not (workspace / "uv.lock").is_file():
        raise UsageError(f"{problem}, and is missing.", hint=f"Lock it: uv lock --project {workspace}")
    pyproject = _pyproject(folder / "pyproject.toml")
    name = package_name(pyproject)
    if not name or not is_package(pyproject):
        hint = f"Add a [build-system] to {start / 'pyproject.toml'}, then: uv lock --project {workspace}"
        raise UsageError(f"{problem}; it has no [build-system] or no name, so it is no package.", hint=hint)
    place = _place(root, workspace, workspace / "uv.lock")
    return replace(place, member=folder.relative_to(workspace).as_posix(), package=name)


def _pyproject(path: Path) -> dict[str, Any]:
    """Return a parsed pyproject.toml; empty if it cannot be read, which other functions report."""
    try:
        return tomllib.loads(read_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}


def _foreign(folder: Path, name: str) -> LockError:
    return LockError(
        f"{folder / name}: torchbake does not read this lock.",
        hint=f"Write one that it reads: {_FOREIGN[name]}. To lock the project without it: "
        f"{_init(folder / 'pyproject.toml')}",
    )


def _conda(path: Path, start: Path) -> LockError:
    """Return the error for a conda environment, with the way to a requirements file of its pip part."""
    try:
        document = parse_document(read_text(path), start)
    except (OSError, UnicodeDecodeError, MatrixError):
        return LockError(
            f"{start}: is no conda environment, and no lock that torchbake reads.", hint="Name another file."
        )
    entries = document.data.get("dependencies") if isinstance(document.data, dict) else None
    items = entries if isinstance(entries, list) else []
    parts = [(number, entry["pip"]) for number, entry in enumerate(items) if isinstance(entry, dict) and "pip" in entry]
    if not parts:
        return LockError(
            f"{start}: a conda environment without pip packages; images are made of wheels, which conda's are not.",
            hint=f"List its packages as PyPI has them in requirements.in, torch among them; then: {_COMPILE}",
        )
    number, packages = parts[0]
    count = len(packages) if isinstance(packages, list) else 0
    where = document.line(("dependencies", number, "pip"))
    return LockError(
        f"{start}:{where}: a conda environment; images are made of wheels, as in its pip part ({count}).",
        hint=f"Copy the lines below `pip:` to requirements.in, and add torch and conda's packages as PyPI has them; "
        f"then: {_COMPILE}",
    )


def _init(start: Path, folder: Path | None = None) -> Command:
    words = (*([str(folder)] if folder else []), "--from", str(start))
    return Command("init", shlex.join(words))


_COMPILE = shlex.join(
    (
        "uv",
        "pip",
        "compile",
        "requirements.in",
        "--generate-hashes",
        "--python-version",
        "3.12",
        "-o",
        "requirements.txt",
    )
)
