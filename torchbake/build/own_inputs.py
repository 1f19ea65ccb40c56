"""The user's own files that an image takes, as texts for its inputs digest."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchbake.errors import RenderError
from torchbake.matrix.added_files import held_by


def own_inputs(root: Path, sources: Iterable[str]) -> tuple[str, ...]:
    """Name, kind and content of each file below ``root`` that these paths and globs mean. Raises RenderError."""
    return tuple(_text(root, path) for source in sources for path in _files(root, source))


def _files(root: Path, source: str) -> Iterator[Path]:
    found = sorted(root.glob(source)) if any(mark in source for mark in "*?[") else [root / source]
    if not found or not all(map(os.path.lexists, found)):
        raise RenderError(
            f"{root / source}: no such file, which a Dockerfile copies.",
            hint="Add it, or correct the template in templates/.",
        )
    for path in found:
        yield from held_by(path) if path.is_dir() and not path.is_symlink() else [path]


def _text(root: Path, path: Path) -> str:
    name = path.relative_to(root).as_posix()
    if path.is_symlink():
        return f"{name}\nlink\n{path.readlink()}"
    if path.is_dir():
        return f"{name}\nfolder"
    kind = "program" if path.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH) else "file"
    with path.open("rb") as file:
        return f"{name}\n{kind}\n{hashlib.file_digest(file, 'sha256').hexdigest()}"
