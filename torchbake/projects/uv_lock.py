"""Check that a uv.lock is of a known form and follows from its pyproject.toml. Pure.

`uv lock --check` needs a Python of the project, and builds packages with dynamic metadata. So the requirements of both
files are compared here. uv writes those of pyproject.toml into its lock (``package.metadata``).
"""

import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.lock.project_inputs import PYPROJECT
from torchbake.projects.pylock import LockLines, line_in, lines_of

_VERSION = 1  # of the format; uv raises `revision` for changes that older readers may ignore
_EXTRA = re.compile(r"\bextra == '([^']+)'")

# Specifiers by section ("", "extra NAME" or "group NAME") and package. None: of a source that replaces the specifier.
Requirements: TypeAlias = dict[tuple[str, str], set[SpecifierSet | None]]


def check_uv_lock(text: str, path: str, pyproject: Mapping[str, Any], folder: str) -> None:
    """Raise LockError if the text is no uv.lock of a known version, or if pyproject.toml has other requirements.

    ``folder`` is the project's, for the hint.
    """
    hint = f"Lock again: uv lock --project {folder}"
    try:
        lock = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LockError(f"{path}{line_in(error)}: is not TOML: {error}.", hint=hint) from None
    version = lock.get("version")
    if version != _VERSION or not isinstance(lock.get("package"), list):
        what = f"has version {version}, but only {_VERSION} is known" if version else "is no lock of uv"
        raise LockError(f"{path}:1: {what}.", hint="Update torchbake, or lock with a uv that it knows: uv lock")
    _check_hashes(lock["package"], lines_of(text, path))
    table = pyproject.get("project")
    if not isinstance(table, dict) or "dependencies" in table.get("dynamic", ()):
        return  # a workspace without a package of its own, or requirements that a build computes
    name = canonicalize_name(str(table.get("name", "")))
    package = next((each for each in lock["package"] if each.get("name") == name), None)
    if package is None:
        raise LockError(f"{path}: has no package {name}, which pyproject.toml names.", hint=hint)
    try:
        declared, locked = _declared(pyproject), _locked(package.get("metadata", {}))
    except (InvalidRequirement, InvalidSpecifier, ExceptionGroup) as error:
        reasons = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        reason = str(reasons[0]).splitlines()[0]
        raise LockError(f"{pyproject_path(path)}: has no valid requirements: {reason}.", hint="Correct it.") from None
    for key in sorted(declared.keys() | locked.keys()):
        if declared.get(key) != locked.get(key) and (key not in declared or None not in locked.get(key, {0})):
            section, requirement = key
            where = f" in {section}" if section else ""
            verb = "no longer has" if key not in declared else "has another" if key in locked else "has the new"
            raise LockError(
                f"{path}: is out of date: pyproject.toml {verb} requirement {requirement}{where}.", hint=hint
            )


def pyproject_path(path: str) -> str:
    """Return the path of the pyproject.toml beside a lock."""
    return posixpath.join(posixpath.dirname(path), PYPROJECT)


def _check_hashes(packages: Iterable[Mapping[str, Any]], lines: LockLines) -> None:
    for package in packages:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        if "registry" in package.get("source", {}) and not all("hash" in file for file in files):
            place = lines.place(package["name"], package.get("version", ""))
            raise LockError(
                f"{place}: {package['name']} has a file without a hash.",
                hint="Lock it from an index that has SHA-256 hashes.",
            )


def _declared(pyproject: Mapping[str, Any]) -> Requirements:
    table = pyproject["project"]
    sections = {"": table.get("dependencies", ())}
    for extra, texts in table.get("optional-dependencies", {}).items():
        sections[f"extra {canonicalize_name(extra)}"] = texts
    legacy = pyproject.get("tool", {}).get("uv", {}).get("dev-dependencies", ())
    groups = dict(pyproject.get("dependency-groups", {}))
    if legacy:
        groups["dev"] = [*groups.get("dev", ()), *legacy]
    for group in groups:
        sections[f"group {canonicalize_name(group)}"] = resolve_dependency_groups(groups, group)
    requirements: Requirements = {}
    for section, texts in sections.items():
        for requirement in map(Requirement, texts):
            specifier = None if requirement.url else requirement.specifier
            requirements.setdefault((section, canonicalize_name(requirement.name)), set()).add(specifier)
    return requirements


def _locked(metadata: Mapping[str, Any]) -> Requirements:
    requirements: Requirements = {}
    for section, entry in _entries(metadata):
        direct = entry.keys() & {"url", "git", "path", "directory", "editable", "virtual"}
        specifier = None if direct else SpecifierSet(entry.get("specifier", ""))
        requirements.setdefault((section, entry["name"]), set()).add(specifier)
    return requirements


def _entries(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in metadata.get("requires-dist", ()):
        match = _EXTRA.search(entry.get("marker", ""))
        yield f"extra {match[1]}" if match else "", entry
    for group, entries in metadata.get("requires-dev", {}).items():
        for entry in entries:
            yield f"group {group}", entry
