"""Read the folder of a project: its lock, its rules for Python, and the files that git does not ignore."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from torchbake.core.files import read_text
from torchbake.core.git import git_failure, is_below_git, run_git
from torchbake.errors import LockError
from torchbake.lock.project_inputs import kind_of
from torchbake.projects.find_lock import LockPlace

_EXACT = re.compile(r"(?:cpython[-@]?|python)?(3\.\d+)(?:\.\d+)?", flags=re.IGNORECASE)
# The headers of pip-compile, and of `uv pip compile` and `uv export` with the command in it.
_COMPILED_FOR = re.compile(r"^#.*(?:\bwith Python |--python-version[ =]|--python[ =]|-p )(3\.\d+)", flags=re.MULTILINE)
_TABLES = ("project", "build-system", "dependency-groups", "tool")  # of a pyproject.toml
_REQUIRES = re.compile(r'^requires-python\s*=\s*(["\'])(?P<text>.*?)\1', flags=re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class PythonRule:
    """A rule for the Python of a project, with its place (``pyproject.toml:5``).

    ``specifier`` is empty if the text is none. ``exact`` is true if the rule names one version. ``reason`` is the rule
    as a reason for a choice.
    """

    specifier: str
    place: str
    reason: str
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class ProjectFolder:
    """A project as its folder has it.

    ``pyprojects`` are the parsed pyproject.toml by folder, and ``sizes`` are the bytes of each file that git does not
    ignore, both by path relative to the project.
    """

    place: LockPlace
    pyprojects: Mapping[str, Mapping[str, Any]]
    sizes: Mapping[str, int]
    rules: tuple[PythonRule, ...] = ()


def read_folder(root: Path, place: LockPlace) -> ProjectFolder:
    """Read a project below the matrix's folder ``root``. Raises LockError for a pyproject.toml that is not valid."""
    folder = root / place.folder
    sizes = _sizes(folder)
    pyprojects = {}
    for path in sizes:
        parent, _, name = path.rpartition("/")
        if name == "pyproject.toml":
            pyprojects[parent or "."] = _pyproject(folder / path, place.path(path), required=not parent)
    return ProjectFolder(place=place, pyprojects=pyprojects, sizes=sizes, rules=tuple(_rules(folder, place)))


def _rules(folder: Path, place: LockPlace) -> Iterator[PythonRule]:
    """Yield the rules for Python, the most binding ones first."""
    for name in place.own_files(".python-version"):
        texts = [line.partition("#")[0].strip() for line in _lines(folder / name)]
        if number := next((number for number, text in enumerate(texts, 1) if text), 0):
            yield _version_rule(texts[number - 1], place.path(name), number)
            break
    header = takewhile(lambda line: line.startswith("#"), _lines(folder / place.lock))
    for number, line in enumerate(header if kind_of(place.lock) == "requirements" else (), 1):
        if match := _COMPILED_FOR.match(line):
            at = f"{place.path(place.lock)}:{number}"
            yield PythonRule(specifier=f"=={match[1]}.*", place=at, reason=f"{at} was compiled for it", exact=True)
            break
    specifiers = set[str]()
    for name in (*place.own_files("pyproject.toml"), place.lock):
        for number, line in enumerate(_lines(folder / name) if name.endswith((".toml", ".lock")) else (), 1):
            match = _REQUIRES.match(line)
            if match and match["text"] not in specifiers:
                specifiers.add(match["text"])
                at = f"{place.path(name)}:{number}"
                yield PythonRule(specifier=match["text"], place=at, reason=f"requires-python {match['text']} ({at})")


def _version_rule(text: str, path: str, number: int) -> PythonRule:
    match = _EXACT.fullmatch(text)
    if match:
        return PythonRule(specifier=f"=={match[1]}.*", place=f"{path}:{number}", reason=path, exact=True)
    try:
        specifier = str(SpecifierSet(text))
    except InvalidSpecifier:
        specifier = ""
    return PythonRule(
        specifier=specifier, place=f"{path}:{number}", reason=f"{text} ({path}:{number})", exact=not specifier
    )


def _pyproject(path: Path, name: str, *, required: bool) -> Mapping[str, Any]:
    """Parse a pyproject.toml. One of another folder may belong to a test, so it is empty if it is not valid."""
    hint = "Correct it; `uv lock` reads it too."
    try:
        data = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if not required:
            return {}
        raise LockError(f"{name}: is not valid TOML: {error}.", hint=hint) from None
    wrong = [key for key in _TABLES if not isinstance(data.get(key, {}), dict)]
    if wrong and required:
        raise LockError(f"{name}: {wrong[0]} is not a table.", hint=hint)
    return {key: value for key, value in data.items() if key not in wrong}


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it is missing or no text, which its own reader reports."""
    try:
        return read_text(path).splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _sizes(folder: Path) -> dict[str, int]:
    paths = _from_git(folder) if is_below_git(folder) else None
    sizes = dict[str, int]()
    for name in sorted(_walk(folder) if paths is None else paths):
        path = folder / name
        if path.is_file() and not path.is_symlink():
            sizes[name] = path.stat().st_size
    return sizes


def _from_git(folder: Path) -> set[str] | None:
    """Return the paths that git tracks, also in submodules, or would track; None without git or a repository."""
    names = set[str]()
    for words in (("--cached", "--recurse-submodules"), ("--others", "--exclude-standard")):
        try:
            process = run_git(folder, "ls-files", "-z", *words)
        except FileNotFoundError:
            return None
        if process.returncode:
            raise git_failure(process, folder)
        names |= {os.fsdecode(name) for name in process.stdout.split(b"\0") if name}
    return names


def _walk(folder: Path) -> Iterator[str]:
    """Yield the paths of a folder that is in no repository, without hidden folders, bytecode and environments."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in ("__pycache__", "node_modules")
            and not name.endswith(".egg-info")
            and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from ((here / name).relative_to(folder).as_posix() for name in names)
