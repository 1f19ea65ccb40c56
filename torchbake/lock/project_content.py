"""The content of an image that is made of a project's own files: packages, or files in the working folder.

A project with packages (`Lock.packages`) is built and installed. Files of another project are copied.
"""

import posixpath
import tomllib
from dataclasses import replace
from pathlib import Path

from torchbake.lock.lockfile import Lock
from torchbake.lock.project_inputs import PYPROJECT, package_name
from torchbake.matrix.spec import Additions, ImageSpec, OwnFile, ProjectSpec, Spec


def project_sources(project: ProjectSpec) -> dict[str, str]:
    """Return the files and folders of a project: their paths below the matrix's folder, by those below the project."""
    return {
        posixpath.normpath(name): posixpath.normpath(posixpath.join(project.folder, name)) for name in project.files
    }


def copied_files(spec: Spec, lock: Lock | None) -> tuple[OwnFile, ...]:
    """Return the files of a project without packages, with their paths in the image."""
    if not isinstance(spec, ImageSpec) or spec.project is None or lock is None or lock.packages:
        return ()
    folder = spec.own.user.workdir
    sources = project_sources(spec.project)
    return tuple(
        OwnFile(source=source, target=posixpath.normpath(f"{folder}/{name}")) for name, source in sources.items()
    )


def added_content(spec: Spec, lock: Lock | None) -> Additions:
    """Return the additions of the matrix to an image, with the copied files of its project."""
    return replace(spec.own, files=(*spec.own.files, *copied_files(spec, lock)))


def package_names(root: Path, spec: Spec, lock: Lock) -> list[str]:
    """Return the names of a project's packages in an image, by their pyproject.toml; "" for a name in another file."""
    if not isinstance(spec, ImageSpec) or spec.project is None:
        return []
    return [_package_name(root / spec.project.folder / folder / PYPROJECT) for folder in lock.packages]


def _package_name(path: Path) -> str:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return package_name(document)
