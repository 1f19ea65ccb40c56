"""The files in which packages are named and list their files: of Python distributions and of dpkg. Pure.

Sources: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
https://setuptools.pypa.io/en/latest/deprecated/python_eggs.html
https://manpages.debian.org/bookworm/dpkg/dpkg-query.1.en.html
"""

import contextlib
import csv
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from torchbake.sbom.package_metadata import read_debs, read_wheel

_DPKG = "var/lib/dpkg/"
_STATUS = re.compile(rf"{_DPKG}(status|status\.d/[^/]+(?<!\.md5sums))")
_INFO = re.compile(rf"{_DPKG}(?:info|status\.d)/(?P<name>[^/:]+)(?::[^/:.]+)?\.(?P<kind>[^/.]+)")
_LISTS = {"list": 0, "md5sums": 1}  # with the column of the path
_METADATA = re.compile(r"(?:.+/)?[^/]+(?:\.dist-info/METADATA|\.egg-info/PKG-INFO|\.egg-info)")
_RECORD = re.compile(r"(?:.+/)?[^/]+(?:\.dist-info/RECORD|\.egg-info/installed-files\.txt)")
# Caches of uv and conda hold unpacked distributions that are not installed.
_CACHES = re.compile(r"(?:^|/)(?:\.cache|archive-v\d+|pkgs)/")


class NamedPackage(NamedTuple):
    """A package that a file names."""

    kind: Literal["python", "debian"]
    name: str
    version: str


ReadPackages: TypeAlias = Callable[[str], tuple[NamedPackage, ...]]
ReadList: TypeAlias = Callable[[str], tuple[str, ...]]


def packages_reader(path: str) -> ReadPackages | None:
    """Return the function that reads the packages in the text of a file; None for a file that names no packages."""
    if _STATUS.fullmatch(path):
        return lambda text: tuple(NamedPackage("debian", deb.name, deb.version) for deb in read_debs(text).packages)
    if not _METADATA.fullmatch(path):
        return None
    name = posixpath.basename(path if path.endswith("-info") else posixpath.dirname(path))
    return lambda text: _distribution(text, name)


def list_reader(path: str) -> ReadList | None:
    """Return the function that reads the names in the text of a file; None for a file that is no list of a package.

    `listed_paths` makes paths of the names.
    """
    if (of := debian_file(path)) and of[1] in _LISTS:
        return partial(_columns, column=_LISTS[of[1]])
    if path.endswith("/RECORD") and _RECORD.fullmatch(path):
        return lambda text: tuple(_first_columns(text))
    return (lambda text: tuple(filter(None, text.splitlines()))) if _RECORD.fullmatch(path) else None


def listed_paths(path: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths, from the image's root, of the names in the list at ``path``."""
    folder = posixpath.dirname(path)
    if debian_file(path):
        folder = ""
    elif path.endswith("/RECORD"):
        folder = posixpath.dirname(folder)
    for name in names:
        yield posixpath.normpath(posixpath.join("/", folder, name)).lstrip("/")


def is_cached(path: str) -> bool:
    """Return whether a file that names a package is in a cache, so that the package is not installed there."""
    return _CACHES.search(path) is not None


def record_of(path: str) -> str:
    """Return the path of the list that belongs to a file that names a Python distribution."""
    folder, name = posixpath.split(path)
    return f"{folder}/{'RECORD' if name == 'METADATA' else 'installed-files.txt'}"


def debian_file(path: str) -> tuple[str, str] | None:
    """Return the package of a file that dpkg keeps for one package, and its kind, as in ``postinst``; else None.

    The kind ``list`` names all paths of the package, ``md5sums`` only its files.
    """
    match = _INFO.fullmatch(path) if path.startswith(_DPKG) else None
    return (match["name"], match["kind"]) if match else None


def _distribution(text: str, folder: str) -> tuple[NamedPackage, ...]:
    wheel = read_wheel(text, folder.replace(".egg-info", ".dist-info"))
    return (NamedPackage("python", wheel.name, wheel.version),) if wheel.name else ()


def _columns(text: str, column: int) -> tuple[str, ...]:
    rows = (line.split(None, column) for line in text.splitlines())
    return tuple(words[column] for words in rows if len(words) > column)


def _first_columns(text: str) -> Iterator[str]:
    """Yield the first column of each line of a CSV file, up to the first line that cannot be read."""
    with contextlib.suppress(csv.Error):
        yield from (row[0] for row in csv.reader(text.splitlines()) if row and row[0])
