"""Folders that become layers: a wheel's files and bytecode, with constant times, owners and modes."""

import compileall
import io
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from py_compile import PycInvalidationMode

from .contents import WheelFile

_CHUNK = 2**20
EPOCH = 315532800  # 1980-01-01, the oldest time that a zip file can say


def write_files(wheel: zipfile.ZipFile, files: Mapping[str, WheelFile], folder: Path) -> None:
    """Write files of a wheel below a folder, which is made if it is missing. `normalise` sets their times."""
    for name, file in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = file.content
        source = io.BytesIO(content) if isinstance(content, bytes) else wheel.open(content)
        with source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
        path.chmod(file.mode)


def compile_bytecode(root: Path, final: Path) -> None:
    """Compile the modules below ``root`` for ``final``, without the sources' times, so the same on every build."""
    compileall.compile_dir(
        root, stripdir=str(root), prependdir=str(final), quiet=2, workers=0,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip


def bytecode_alone(sources: Path, folder: Path, final: Path) -> None:
    """Make a folder with the bytecode of another folder's modules, compiled for ``final``."""
    shutil.copytree(sources, folder)
    compile_bytecode(folder, final)
    for source in folder.rglob("*.py"):
        source.unlink()


def normalise(root: Path) -> None:
    """Set constant times and modes: readable by all, writable by the owner alone."""
    for folder, folders, files in os.walk(root, topdown=False):
        for name in (*files, *folders):
            _normalise_entry(Path(folder, name))
    _normalise_entry(root)


def _normalise_entry(path: Path) -> None:
    if not path.is_symlink():
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
