"""Read a project's lock of any kind."""

import os
import posixpath
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from packaging.pylock import Package
from packaging.utils import canonicalize_name

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig, local_folder
from torchbake.lock.project_inputs import (
    PYPROJECT,
    is_package,
    kind_of,
    package_name,
    read_project_file,
    read_toml,
    uv_settings,
)
from torchbake.matrix.added_paths import project_folder
from torchbake.matrix.spec import ProjectSpec
from torchbake.projects.complete import ask_indexes, complete_lock
from torchbake.projects.export import export_uv_lock, look_up, resolve_project
from torchbake.projects.packages import Archive, Folder, ProjectLock, ProjectPackage, Source
from torchbake.projects.pylock import LockLines, lines_of, markers_of, parse_pylock, select_packages
from torchbake.projects.requirements_file import (
    RequirementLine,
    RequirementsFile,
    hidden_values,
    parse_requirements,
)
from torchbake.projects.uv_lock import check_exported_hashes, check_uv_lock
from torchbake.projects.via import via_of, with_via


def read_project(
    root: Path,
    project: ProjectSpec,
    python: str,
    config: PipConfig,
    *,
    previous: Iterable[str] = (),
    exclude: Iterable[str] = (),
) -> ProjectLock:
    """Return the packages of a project's lock for a base's Python; ``root`` is the matrix's folder.

    A uv.lock needs no network. For the other kinds the package indexes say what requires what. Without a lock, pins of
    ``previous`` are kept if they fit, and ``exclude`` (``torch!=2.13.0+cpu``) are not. Raises LockError, with file and
    line.
    """
    kind = kind_of(project.lock)
    if project.package and kind != "uv":
        raise LockError(
            f"{project.lock_path}: is not the lock of a workspace, so it has no package {project.package} to choose.",
            hint="Take `package` out of the row, or name the workspace's uv.lock.",
        )
    match kind:
        case "uv":
            lock = _of_uv_lock(root, project, python)
        case "pylock":
            lock = _of_pylock(root, project, python)
            lock = complete_lock(root, lock, python, config, [each.index for each in lock.packages])
        case "requirements":
            text = read_project_file(root, project.lock_path)
            with hidden_values(text, os.environ):
                lock = _of_requirements(root, project, python, config)
        case "pyproject":
            lock = _of_pyproject(root, project, python, config, previous=previous, exclude=exclude)
    return _with_folders(root, project, _with_project(root, project, lock))


def read_versions(root: Path, project: ProjectSpec, python: str) -> dict[str, str] | None:
    """Return the versions in a project's lock by package, without a network; None if nothing is locked.

    Raises LockError.
    """
    match kind_of(project.lock):
        case "uv":
            packages = _of_uv_lock(root, project, python).packages
        case "pylock":
            packages = _of_pylock(root, project, python).packages
        case "requirements":
            lines = _parsed(root, project, python).lines
            return {line.name: line.version for line in lines if not isinstance(line.source, Folder)}
        case "pyproject":
            return None
    return {each.name: each.version for each in packages if not isinstance(each.source, Folder)}


def _of_uv_lock(root: Path, project: ProjectSpec, python: str) -> ProjectLock:
    path = project.lock_path
    text = read_project_file(root, path)
    _check_in_folder(project)
    read_toml(root, posixpath.normpath(f"{project.folder}/{PYPROJECT}"))  # uv names no line of an error in it
    check_uv_lock(text, path, partial(_pyproject_in, root, project))
    lines = lines_of(text, path)
    try:
        document, requirements = export_uv_lock(root / project.folder, project)
    except LockError as error:
        check_exported_hashes(text, lines, error.message)
        message = error.message.replace(str((root / project.folder).resolve()), project.folder)
        raise LockError(lines.located(message), hint=error.hint) from None
    return _resolved(lines, document, requirements, python)


def _of_pyproject(
    root: Path,
    project: ProjectSpec,
    python: str,
    config: PipConfig,
    *,
    previous: Iterable[str],
    exclude: Iterable[str],
) -> ProjectLock:
    path = project.lock_path
    settings = uv_settings(read_toml(root, path))
    _check_in_folder(project)
    document, requirements = resolve_project(
        root / project.folder, project, python, config, previous=previous, exclude=exclude, settings=settings
    )
    return _resolved(lines_of(read_project_file(root, path), path), document, requirements, python)


def _pyproject_in(root: Path, project: ProjectSpec, folder: str) -> dict[str, Any] | None:
    """Return the pyproject.toml in a folder relative to the project's; None if there is none below the matrix's."""
    path = posixpath.normpath(posixpath.join(project.folder, folder, PYPROJECT))
    return read_toml(root, path) if not path.startswith("..") and (root / path).is_file() else None


def _resolved(lines: LockLines, document: str, requirements: str, python: str) -> ProjectLock:
    """Return the packages of uv's output in both forms."""
    lock = parse_pylock(document, lines.path)
    packages = with_via(select_packages(lock, lines, python), via_of(requirements))
    return _project_lock(lines, packages, str(lock.requires_python or ""))


def _of_pylock(root: Path, project: ProjectSpec, python: str) -> ProjectLock:
    path = project.lock_path
    text = read_project_file(root, path)
    lock, lines = parse_pylock(text, path), lines_of(text, path)
    packages = select_packages(lock, lines, python, extras=project.extras, groups=project.groups)
    beside = posixpath.dirname(project.lock)
    packages = tuple(
        replace(each, source=replace(each.source, path=posixpath.normpath(posixpath.join(beside, each.source.path))))
        if isinstance(each.source, Folder)
        else each
        for each in packages
    )
    return _project_lock(lines, packages, str(lock.requires_python or ""))


def _project_lock(lines: LockLines, packages: tuple[ProjectPackage, ...], requires_python: str) -> ProjectLock:
    numbers = {each.name: lines.number(each.name, each.version) for each in packages}
    numbers["requires-python"] = lines.number("requires-python")
    return ProjectLock(
        path=lines.path,
        packages=packages,
        requires_python=requires_python,
        lines={name: number for name, number in numbers.items() if number},
    )


def _of_requirements(root: Path, project: ProjectSpec, python: str, config: PipConfig) -> ProjectLock:
    path, file = project.lock_path, _parsed(root, project, python)
    folder = root / project.folder
    folders = (str(folder / place) if local_folder(place) else place for place in file.find_links)
    config = replace(config, find_links=(*config.find_links, *folders))
    pinned = {line.name: line for line in file.lines if line.source is None}
    others = [line for line in file.lines if line.source is not None]
    lines = LockLines(path=path, numbers={(line.name, ""): line.number for line in file.lines})
    versions = {name: line.version for name, line in pinned.items()}
    document = ask_indexes(config, file.indexes, lambda sources: look_up(versions, path, python, sources))
    lock = parse_pylock(document, path)
    fitting = [_with_locked_files(each, pinned[each.name], path) for each in lock.packages]
    packages = [
        replace(each, hashes=pinned[each.name].hashes or each.hashes)
        for each in select_packages(replace(lock, packages=fitting), lines, python)
    ]
    packages += [
        ProjectPackage(name=line.name, version=line.version, hashes=line.hashes, source=_beside(project, line.source))
        for line in others
        if line.source
    ]
    result = _project_lock(lines, tuple(sorted(packages, key=lambda each: each.name)), "")
    if any(line.via is not None for line in file.lines):
        return replace(result, packages=with_via(result.packages, {line.name: line.via or () for line in file.lines}))
    return complete_lock(root, result, python, config, file.indexes)


def _parsed(root: Path, project: ProjectSpec, python: str) -> RequirementsFile:
    path = project.lock_path
    if project.groups or project.extras:
        raise LockError(
            f"{path}: a requirements file has no groups and no extras.",
            hint="Take them out of the row, or name a uv.lock or a pylock.toml.",
        )
    markers = cast("dict[str, str]", markers_of(f"{python}.0"))
    file = parse_requirements(read_project_file(root, path), path, markers, os.environ)
    return replace(file, lines=tuple(_with_name(root, project, line) for line in file.lines))


def _beside(project: ProjectSpec, source: Source) -> Source:
    """Return a file whose path is relative to the lock. In a requirements file it is relative to the project."""
    path = local_folder(source.url) if isinstance(source, Archive) else None
    if path is None or path.is_absolute():
        return source
    return Archive(url=posixpath.relpath(path.as_posix(), posixpath.dirname(project.lock) or "."))


def _with_name(root: Path, project: ProjectSpec, line: RequirementLine) -> RequirementLine:
    """Return a line with the name that the package in its folder has."""
    if line.name or not isinstance(line.source, Folder):
        return line
    folder = _inside(root, project, line.source.path, f"{project.lock_path}:{line.number}")
    path = posixpath.normpath(posixpath.join(project.folder, folder))
    name = package_name(_pyproject_in(root, project, folder) or {}) or canonicalize_name((root / path).resolve().name)
    return replace(line, name=name, source=replace(line.source, path=folder))


def _with_locked_files(package: Package, line: RequirementLine, path: str) -> Package:
    """Keep the files of an index whose hashes a requirements file has; all if it has none. Raises LockError."""
    if not line.hashes:
        return package
    wheels = [each for each in package.wheels or () if f"sha256:{each.hashes.get('sha256')}" in line.hashes]
    sdist = package.sdist if package.sdist and f"sha256:{package.sdist.hashes.get('sha256')}" in line.hashes else None
    if not wheels and not sdist:
        raise LockError(
            f"{path}:{line.number}: {line.name} {line.version} has no hash of a file for this Python on x86_64 Linux.",
            hint="Lock the project again with the hashes of all files, or for Linux.",
        )
    return replace(package, wheels=wheels or None, sdist=sdist)


def _with_project(root: Path, project: ProjectSpec, lock: ProjectLock) -> ProjectLock:
    """Add the project's own package to a lock that is not uv's, and so lists only what the project requires."""
    path = posixpath.normpath(f"{project.folder}/{PYPROJECT}")
    if kind_of(project.lock) == "uv" or "." in lock.folders or not project.files or not (root / path).is_file():
        return lock
    document = read_toml(root, path)
    if not is_package(document):
        return lock
    name = package_name(document) or canonicalize_name((root / path).resolve().parent.name)
    own = ProjectPackage(name=name, version="", hashes=(), source=Folder(path="."))
    return replace(lock, packages=tuple(sorted((*lock.packages, own), key=lambda each: each.name)))


def _check_in_folder(project: ProjectSpec) -> None:
    folder = posixpath.dirname(project.lock_path)
    if "/" in project.lock:
        raise LockError(
            f"{project.lock_path}: is not in the project's folder.", hint=f"Name its folder: `folder: {folder}`"
        )


def _with_folders(root: Path, project: ProjectSpec, lock: ProjectLock) -> ProjectLock:
    """Return a lock whose folders are relative to the project's. Raises LockError if builds cannot have one."""
    packages = (
        replace(each, source=replace(each.source, path=_inside(root, project, each.source.path, lock.place(each.name))))
        if isinstance(each.source, Folder)
        else each
        for each in lock.packages
    )
    return replace(lock, packages=tuple(packages))


def _inside(root: Path, project: ProjectSpec, path: str, place: str) -> str:
    """Return a package's folder relative to the project's. Raises LockError if builds cannot have it."""
    folder, top = root / project.folder / path, (root / project.folder).resolve()
    if not folder.resolve().is_relative_to(top):
        raise LockError(
            f"{place}: the package in {path} is outside of the project's folder {project.folder}.",
            hint="Name a folder that holds both in `project: {folder: …}`, or put the package below the project.",
        )
    if not folder.is_dir():
        raise LockError(f"{place}: there is no folder {path}.", hint="Correct the path, or lock the project again.")
    if not any((folder / name).is_file() for name in (PYPROJECT, "setup.py")):
        raise LockError(
            f"{place}: {path} has no pyproject.toml, so it is no package.",
            hint="Add a pyproject.toml with a [build-system], or take the folder out of the lock.",
        )
    relative = folder.resolve().relative_to(top).as_posix() if path.startswith("/") else posixpath.normpath(path)
    try:
        return project_folder(relative)
    except ValueError as error:
        raise LockError(f"{place}: no build can have the package's folder: {error}.", hint="Rename it.") from None
