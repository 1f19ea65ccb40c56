"""The files in which packages are named and list their files: of Python distributions and of dpkg. Pure.

Sources: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
https://setuptools.pypa.io/en/latest/deprecated/python_eggs.html
https://manpages.debian.org/bookworm/dpkg/dpkg-query.1.en.html
"""

import contextlib
import csv
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from torchbake.sbom.package_metadata import read_debs, read_wheel

_DPKG = "var/lib/dpkg/"
_STATUS = re.compile(rf"{_DPKG}(status|status\.d/[^/]+(?<!\.md5sums))")
_LIST = re.compile(rf"{_DPKG}(?:info|status\.d)/(?P<name>[^/:]+)(?::[^/:]+)?\.(?P<kind>list|md5sums)")
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
    if not _METADATA.fullmatch(path) or _CACHES.search(path):
        return None
    name = posixpath.basename(path if path.endswith("-info") else posixpath.dirname(path))
    return lambda text: _distribution(text, name)


def list_reader(path: str) -> ReadList | None:
    """Return the function that reads the paths in the text of a file; None for a file that is no list of a package.

    Paths are relative to the image's root, and normal.
    """
    if match := _LIST.fullmatch(path):
        column = 0 if match["kind"] == "list" else 1
        return lambda text: tuple(
            _normal(words[column]) for line in text.splitlines() if len(words := line.split(None, column)) > column
        )
    if not _RECORD.fullmatch(path) or _CACHES.search(path):
        return None
    folder = posixpath.dirname(path)
    if path.endswith("/RECORD"):
        parent = posixpath.dirname(folder)
        return lambda text: tuple(_normal(parent, name) for name in _first_columns(text))
    return lambda text: tuple(_normal(folder, line) for line in text.splitlines() if line)


def record_of(path: str) -> str:
    """Return the path of the list that belongs to a file that names a Python distribution."""
    folder, name = posixpath.split(path)
    return f"{folder}/{'RECORD' if name == 'METADATA' else 'installed-files.txt'}"


def debian_list(path: str) -> tuple[str, bool] | None:
    """Return the package of a list of dpkg, and whether the list names folders and links too; None for another file."""
    match = _LIST.fullmatch(path)
    return (match["name"], match["kind"] == "list") if match else None


def _distribution(text: str, folder: str) -> tuple[NamedPackage, ...]:
    wheel = read_wheel(text, folder.replace(".egg-info", ".dist-info"))
    return (NamedPackage("python", wheel.name, wheel.version),) if wheel.name else ()


def _first_columns(text: str) -> Iterator[str]:
    """Yield the first column of each line of a CSV file, up to the first line that cannot be read."""
    with contextlib.suppress(csv.Error):
        yield from (row[0] for row in csv.reader(text.splitlines()) if row and row[0])


def _normal(*parts: str) -> str:
    return posixpath.normpath(posixpath.join("/", *parts)).lstrip("/")
