"""The files of the matrix's folder that an image takes, as texts for its inputs digest."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchbake.errors import RenderError
from torchbake.matrix.added_files import held_by
from torchbake.matrix.dockerignore import read_ignore


def own_inputs(root: Path, sources: Mapping[str, bool]) -> tuple[str, ...]:
    """Return name, kind and digest of each file below ``root`` that the paths and globs match. Raises RenderError.

    If a path's value is true, the image gets the modes of the files, so they are in the text. Else the build sets the
    modes, and only the executable bit counts.
    """
    return tuple(
        _text(root, path, modes) for source, modes in sources.items() for path in files_of(root, source, modes)
    )


def files_of(root: Path, source: str, modes: bool) -> Iterator[Path]:
    """Yield the files below ``root`` that a path or a glob matches, with folders if ``modes``. Raises RenderError."""
    if any(mark in source for mark in "*?["):
        ignore = read_ignore(root)
        globbed = root.glob(source)
        found_paths = sorted(path for path in globbed if ignore.takes(path.relative_to(root).as_posix(), [source]))
    else:
        found_paths = [root / source]
    if not found_paths or not all(map(os.path.lexists, found_paths)):
        raise RenderError(
            f"{root / source}: no such file, which a Dockerfile copies.",
            hint="Add it, or correct the template in templates/.",
        )
    for path in found_paths:
        if not path.is_dir() or path.is_symlink():
            yield path
        else:
            yield from [path] if modes else []
            yield from held_by(root, path)


def _text(root: Path, path: Path, modes: bool) -> str:
    name = path.relative_to(root).as_posix()
    if path.is_symlink():
        return f"{name}\nlink\n{path.readlink()}"
    mode = stat.S_IMODE(path.stat().st_mode)
    if path.is_dir():
        return f"{name}\nfolder" + (f" {mode:o}" if modes else "")
    usual = "program" if mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH) else "file"
    with path.open("rb") as file:
        return f"{name}\n{f'{mode:o}' if modes else usual}\n{hashlib.file_digest(file, 'sha256').hexdigest()}"
