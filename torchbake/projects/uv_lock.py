"""Check that a uv.lock is of a known form and follows from its pyproject.toml. Pure.

`uv lock --check` needs a Python of the project, and builds packages with dynamic metadata. So the requirements of both
files are compared here. uv writes those of pyproject.toml into its lock (``package.metadata``).
"""

import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.lock.project_inputs import PYPROJECT, uv_settings
from torchbake.projects.pylock import LockLines, line_in, lines_of

_VERSION = 1  # of the format; uv raises `revision` for changes that older readers may ignore
_OWN = ("editable", "virtual", "directory")  # kinds of sources that are folders
_MALFORMED = (AttributeError, KeyError, TypeError)
_EXTRA = re.compile(r"\bextra == '([^']+)'")

# Specifiers by section ("", "extra NAME" or "group NAME") and package. None: of a source that replaces the specifier.
Requirements: TypeAlias = dict[tuple[str, str], set[SpecifierSet | None]]


def check_uv_lock(text: str, path: str, read: Callable[[str], Mapping[str, Any] | None]) -> None:
    """Raise LockError if the text is no uv.lock of a known version, or if a pyproject.toml has other requirements.

    ``path`` is the lock's. ``read`` returns the pyproject.toml in a folder relative to the lock's; None if it has none.
    """
    project = posixpath.dirname(path) or "."
    hint = f"Lock again: uv lock --project {project}"
    try:
        lock = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LockError(f"{path}{line_in(error)}: is not TOML: {error}.", hint=hint) from None
    version, packages = lock.get("version"), lock.get("package")
    if version != _VERSION or not isinstance(packages, list):
        what = f"has version {version!r}, but only {_VERSION} is known" if version else "is no lock of uv"
        raise LockError(f"{path}:1: {what}.", hint="Update torchbake, or lock with a uv that it knows: uv lock")
    lines = lines_of(text, path)
    try:
        own = {
            folder: package
            for package in packages
            for kind in _OWN
            if isinstance(folder := package["source"].get(kind), str)
        }
        locked = {folder: _locked(package.get("metadata", {})) for folder, package in own.items()}
        places = {folder: lines.place(each["name"], each.get("version", "")) for folder, each in own.items()}
    except (*_MALFORMED, InvalidSpecifier) as error:
        raise LockError(f"{path}: is damaged: {type(error).__name__} {error}.", hint=hint) from None
    for folder, requirements in locked.items():
        pyproject = read(folder)
        if pyproject is not None:
            file = posixpath.normpath(posixpath.join(project, folder, PYPROJECT))
            _check_package(pyproject, file, own[folder]["name"], requirements, place=places[folder], hint=hint)


def check_exported_hashes(text: str, lines: LockLines, message: str) -> None:
    """Raise LockError if uv's error ``message`` names a file that has no hash in the lock.

    An export needs hashes of the packages that it selects. Other packages may have none: PyTorch's index for ROCm does
    not give any.
    """
    for package in tomllib.loads(text)["package"]:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        if any("hash" not in file and "url" in file and file["url"] in message for file in files):
            place = lines.place(package["name"], package.get("version", ""))
            raise LockError(
                f"{place}: {package['name']} has a file without a hash.",
                hint="Lock it from an index that has SHA-256 hashes.",
            )


def _check_package(
    pyproject: Mapping[str, Any], file: str, name: str, locked: Requirements, *, place: str, hint: str
) -> None:
    """Compare the requirements of one of the project's packages; ``place`` is the line of the package in the lock."""
    table = pyproject.get("project")
    if not isinstance(table, dict):
        return  # a workspace whose root is no package
    if canonicalize_name(str(table.get("name", ""))) != name:
        raise LockError(f"{place}: is out of date: {file} has another name than {name}.", hint=hint)
    try:
        if "dependencies" in table.get("dynamic", ()):
            return  # a build computes them
        declared = _declared(pyproject)
    except (*_MALFORMED, ValueError, ExceptionGroup) as error:
        reason = str(error.exceptions[0] if isinstance(error, ExceptionGroup) else error).splitlines()[0]
        raise LockError(f"{file}: has no valid requirements: {reason}.", hint="Correct it.") from None
    for key in sorted(declared.keys() | locked.keys()):
        if declared.get(key) == locked.get(key) or (key in declared and None in locked.get(key, ())):
            continue
        section, requirement = key
        where = f" in {section}" if section else ""
        verb = "no longer has" if key not in declared else "has another" if key in locked else "has the new"
        raise LockError(f"{place}: is out of date: {file} {verb} requirement {requirement}{where}.", hint=hint)


def _declared(pyproject: Mapping[str, Any]) -> Requirements:
    table = pyproject["project"]
    sections = {"": table.get("dependencies", ())}
    for extra, texts in table.get("optional-dependencies", {}).items():
        sections[f"extra {canonicalize_name(extra)}"] = texts
    legacy = uv_settings(pyproject).get("dev-dependencies", ())
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
