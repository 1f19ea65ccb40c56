"""Write the build context for buildah and podman: a folder with only the files that the build needs."""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchbake.build.podman_file import OURS
from torchbake.build.project_files import files_of
from torchbake.render.build_context import OWN_WHEELS, all_sources


def own_files(root: Path, dockerfile: str) -> list[tuple[str, Path]]:
    """Return the files of a build's folder that a Dockerfile takes, with their paths in the context."""
    sources = sorted(
        source for source in all_sources(dockerfile) if not source.startswith(f"{OURS}/") and source != OWN_WHEELS
    )
    return [
        (path.relative_to(root).as_posix(), path) for source in sources for path in files_of(root, source, modes=True)
    ]


def some_of(folder: Path, below: str, paths: Iterable[str]) -> list[tuple[str, Path]]:
    """Return files and folders of a folder with their paths in the context; for the path ``.`` the whole folder."""
    if "." in paths:
        return all_of(folder, below)
    matches = [(below, folder)] if paths else []
    for path in sorted(paths):
        if (folder / path).is_dir():
            matches += all_of(folder / path, f"{below}/{path}")
        elif (folder / path).exists():
            matches.append((f"{below}/{path}", folder / path))
    return matches


def all_of(folder: Path, below: str) -> list[tuple[str, Path]]:
    """Return a folder with all its files except bytecode, with their paths in the context."""
    found_paths = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.relative_to(folder).parts]
    names = [(f"{below}/{path.relative_to(folder).as_posix()}".lstrip("/"), path) for path in found_paths]
    return [(below, folder), *names] if below else names


def write_context(folder: Path, files: Iterable[tuple[str, Path]], texts: Mapping[str, str]) -> None:
    """Write the context. Files are hard links, or copies on another file system."""
    folders = []
    for name, path in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            target.mkdir(exist_ok=True)
            folders.append((path, target))
        elif os.path.lexists(target):  # of another source of the Dockerfile
            continue
        elif path.is_symlink():
            target.symlink_to(path.readlink())
        else:
            try:
                target.hardlink_to(path)
            except OSError:
                shutil.copy2(path, target)
    for path, target in reversed(folders):
        shutil.copystat(path, target)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
