"""All that decides what preparing images gives, as one sha256.

Preparing reads files and nothing else that could differ: the matrix, locks, Dockerfiles, the records of bases, the
toolkit's templates and what goes into images, and the toolkit itself. A test watches which files it opens.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from torchbake.core.digest import digest
from torchbake.core.paths import PACKAGE, TOOLKIT, state_of

_FOLDERS = ("templates", "layers", "entrypoints")  # of the toolkit
_ABSENT, _FOLDER = "absent", "folder"
_INSTALLED = (".dist-info", ".egg-info", ".egg-link")


def sources_digest(matrix: Path) -> str:
    """``sha256:…`` of the content of all files, of this Python, and of the packages beside it by their versions.

    Raises OSError for a file that cannot be read, or not twice, and ValueError for a name that is not text.
    """
    files = (part for path in source_files(matrix) for part in (path, _content(path)))
    return digest((*_python(), *files))


def source_files(matrix: Path) -> Iterator[str]:
    """The files that are there, and those that may be."""
    yield from (path for path in _below(PACKAGE) if path.endswith(".py"))
    for name in _FOLDERS:
        yield from _below(TOOLKIT / name)
    path = matrix.absolute()
    yield str(path)
    images = path.parent / "images"
    for name in _names(images):
        yield f"{images}/{name}"
        yield from (f"{images}/{name}/{file}" for file in _names(images / name))
    bases = state_of(path.parent) / "bases"
    for name in _names(bases):
        # Of a base's folder the index alone says which one it is.
        yield f"{bases}/{name}" if name.endswith(".json") else f"{bases}/{name}/index.json"


def _below(folder: Path) -> Iterator[str]:
    """All files below a folder of the toolkit, in order, but for what Python compiles there."""
    for where, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in folders:
            if os.path.islink(f"{where}/{name}"):  # noqa: PTH114 - as text: there are hundreds
                raise OSError(f"{where}/{name} is a link to a folder, which may have no end")
        yield from (f"{where}/{name}" for name in sorted(names))


def _raise(error: OSError) -> NoReturn:
    raise error


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except (FileNotFoundError, NotADirectoryError):
        return []


def _content(path: str) -> str:
    """The digest of a file; a pipe, or a device, would be used up by reading it."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as above
        if stat.S_ISDIR(mode):
            return _FOLDER
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is no regular file")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return hashlib.sha256(file.read()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT


def _python() -> Iterator[str]:
    """What runs: Python, its settings, and all packages that it finds, which have their versions in their names."""
    yield from (sys.version, repr(sys.flags), sys.getfilesystemencoding())
    for place in sys.path:
        names = [name for name in _names(Path(place)) if name.endswith(_INSTALLED)]
        yield from (place, *names)
