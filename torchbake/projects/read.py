"""Read a project's lock of any kind."""

from pathlib import Path

from torchbake.core.files import read_text
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.spec import ProjectSpec
from torchbake.projects.export import export_uv_lock, via_of
from torchbake.projects.packages import ProjectLock
from torchbake.projects.pylock import lines_of, parse_pylock, select_packages, with_via


def read_project(root: Path, project: ProjectSpec, python: str, config: PipConfig) -> ProjectLock:
    """Return the packages of a project's lock for a base's Python; ``root`` is the matrix's folder.

    Raises LockError, with file and line, if the lock cannot be read or has no packages for this Python.
    """
    path = project.lock_path
    text = _text(root / path, path)
    if Path(project.lock).name != "uv.lock":
        raise LockError(f"{path}: is not a uv.lock.", hint="Name the project's uv.lock in `project: {lock: …}`.")
    document, requirements = export_uv_lock(root / project.folder, project, path, config)
    lock = parse_pylock(document, path)
    packages = with_via(select_packages(lock, document, path, python), via_of(requirements))
    return ProjectLock(
        path=path,
        packages=packages,
        requires_python=str(lock.requires_python or ""),
        lines=lines_of(text, packages),
    )


def _text(path: Path, name: str) -> str:
    hint = "Correct `project:` of the row, or lock the project: uv lock"
    try:
        return read_text(path)
    except FileNotFoundError:
        raise LockError(f"{name}: there is no such file.", hint=hint) from None
    except UnicodeDecodeError as error:
        raise LockError(f"{name}: is not UTF-8 text (byte {error.start}).", hint=hint) from None
    except OSError as error:
        raise LockError(f"{name}: {error.strerror}.", hint=hint) from None
