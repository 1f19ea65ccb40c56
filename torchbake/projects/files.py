"""The files of a project that its image is made of. Pure.

A package is built of its metadata, its license texts and its source folders. Any other project is copied: its Python
files, its settings and its folders, but no tests, documents or data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torchbake.core.sizes import human
from torchbake.lock.project_inputs import is_package
from torchbake.matrix.added_paths import beside
from torchbake.projects.package_files import package_files

_LARGEST = 100 * 1000 * 1000  # bytes of a folder
_PROGRAMS = ("*.py", "*.sh", "*.yaml", "*.yml", "*.toml", "*.json", "*.ini", "*.cfg")
# Settings of tools that develop, lock, build or start a project, and torchbake's own files.
_OF_TOOLS = (
    *("pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "mypy.ini", "pytest.ini", "ruff.toml", "noxfile.py"),
    *("conftest.py", "uv.toml", "pylock*.toml", "pixi.toml", "environment*.y*ml", "mkdocs.yml", "codecov.y*ml"),
    *("compose*.y*ml", "docker-compose*.y*ml", "package*.json", "renovate.json", "matrix.yaml", "*.schema.json"),
    *("job.yaml", "Pipfile*"),
)
_REASONS = {
    **dict.fromkeys(("test", "tests", "testing"), "tests"),
    **dict.fromkeys(("doc", "docs", "documentation", "example", "examples", "notebook", "notebooks"), "documents"),
    **dict.fromkeys(("build", "dist", "site", "htmlcov", "node_modules", "env", "venv"), "output of tools"),
    **dict.fromkeys(("images", "reports", "wheels"), "torchbake's own"),
}
# Folders of data, unless they have Python files: `data/` is often a module with loaders.
_DATA = {
    *("data", "dataset", "datasets", "output", "outputs", "result", "results", "run", "runs", "log", "logs", "wandb"),
    *("mlruns", "lightning_logs", "checkpoint", "checkpoints", "ckpt", "ckpts", "weights", "artifacts", "cache", "tmp"),
}


@dataclass(frozen=True, kw_only=True)
class FileChoice:
    """The paths for an image, as the matrix lists them, and the paths that were left out, each with the reason."""

    files: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The choice in words, a line each."""
        lines = (f"left out: {path} ({reason})" for path, reason in self.left_out.items())
        return (f"files: {', '.join(self.files) or 'none'}", *lines)


def choose_files(
    pyprojects: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, int],
    packages: Sequence[str],
    *,
    member: bool = False,
) -> FileChoice:
    """Choose the files for a project's image.

    Each parsed pyproject.toml is in ``pyprojects`` by its folder. The bytes of each file are in ``sizes`` by its path.
    The folders of the project's own packages are in ``packages``, as its lock names them. All paths are relative to the
    project. For a ``member`` of a workspace, the root counts only if it is among the packages.
    """
    members = [folder for folder in packages if folder != "."]
    left_out = dict[str, str]()
    paths = list[str]()
    if "." in packages or (not member and is_package(pyprojects.get(".", {}))):
        paths += package_files(pyprojects.get(".", {}), tuple(sizes))
    elif not member:
        others = {*members, *pyprojects} - {"."}  # packages, which the lock names if the project needs them
        own = {path: size for path, size in sizes.items() if not any(path.startswith(f"{each}/") for each in others)}
        paths += _program_files(own, left_out)
    for folder in members:
        below = [path.removeprefix(f"{folder}/") for path in sizes if path.startswith(f"{folder}/")]
        paths += [f"{folder}/{path}" for path in package_files(pyprojects.get(folder, {}), below)]
    left_out |= {path: reason for path in paths if (reason := _why_impossible(path))}
    possible = dict.fromkeys(path for path in paths if path not in left_out)
    below_another = {
        path for path in possible for folder in possible if path != folder and path.startswith(folder.rstrip("/") + "/")
    }
    return FileChoice(files=tuple(path for path in possible if path not in below_another), left_out=left_out)


def _program_files(sizes: Mapping[str, int], left_out: dict[str, str]) -> Iterator[str]:
    """Yield the top-level paths of a project that is copied, and add the others to ``left_out``."""
    for name in sorted({path.partition("/")[0] for path in sizes if not path.startswith(".")}):
        below = {path: size for path, size in sizes.items() if path.startswith(f"{name}/")}
        if not below:
            if _fits(name, _PROGRAMS) and not _fits(name, _OF_TOOLS):
                yield name
        elif reason := _why_not(name, below):
            left_out[f"{name}/"] = reason
        else:
            yield f"{name}/"


def _why_not(name: str, below: Mapping[str, int]) -> str:
    """Return why a folder is not copied; empty if it is."""
    has_python = any(path.endswith(".py") for path in below)
    size = sum(below.values())
    if reason := _REASONS.get(name.lower(), ""):
        return reason
    if name.lower() in _DATA and not has_python:
        return "data"
    return f"{human(size)}, more than {human(_LARGEST)}" if size > _LARGEST else ""


def _why_impossible(path: str) -> str:
    """Return why a matrix cannot name a path; empty if it can."""
    try:
        beside(path)
    except ValueError as error:
        return str(error)
    return ""


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
