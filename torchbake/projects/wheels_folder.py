"""The folder ``wheels/`` beside a matrix: the wheels of packages that no index has as wheels.

The name of a wheel that was built here has a build tag with the digest of its source. So the wheels of two commits with
one version are two files, and a wheel is found again without its source.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from torchbake.core.digest import digest, file_digest
from torchbake.core.paths import wheels_of
from torchbake.hostconfig.pip_config import without_login
from torchbake.lock.wheel_tags import wheel_tags
from torchbake.projects.packages import Archive, GitSource, ProjectPackage, Sdist, WheelSource

_DIGITS = 12  # of a source's digest in a wheel's name


def is_wheel(package: ProjectPackage) -> bool:
    """Return whether a package's source is a wheel by its address or its path."""
    return isinstance(package.source, Archive) and wheel_name(package.source).endswith(".whl")


def wheel_name(archive: Archive) -> str:
    """Return the file name in an archive's address."""
    return PurePosixPath(unquote(urlsplit(archive.url).path)).name


def fits(archive: Archive, python: str) -> bool:
    """Return whether an address is that of a wheel for a Python on x86_64 Linux."""
    try:
        tags = parse_wheel_filename(wheel_name(archive))[3]
    except InvalidWheelFilename:
        return False
    return any(tag in wheel_tags(python) for tag in tags)


def fitting_wheel(package: ProjectPackage, python: str) -> str:
    """Return the file name of a package's wheel that fits a Python; empty if its source is no such wheel."""
    source = package.source
    if isinstance(source, WheelSource):
        return source.filename
    return wheel_name(source) if isinstance(source, Archive) and fits(source, python) else ""


def tagged(name: str, build: str) -> str:
    """Return the file name of a wheel with another build tag."""
    stem, interpreter, abi, platforms = name.removesuffix(".whl").rsplit("-", 3)
    return "-".join((*stem.split("-")[:2], build, interpreter, abi, platforms)) + ".whl"


def build_tag(package: ProjectPackage) -> str:
    """Return the build tag of wheels of a package's source; with the same source it is the same.

    A build tag begins with a digit: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    source = package.source
    if isinstance(source, GitSource):
        parts: tuple[str, ...] = ("git", without_login(source.url), source.commit, source.subdirectory)
    elif isinstance(source, Archive | Sdist):  # a mirror has other addresses, but the same hashes
        parts = ("archive", *(package.hashes or (source.url,)), getattr(source, "subdirectory", ""))
    else:
        raise TypeError(f"{package.name} is not built from a source")
    return f"0s{digest(parts).removeprefix('sha256:')[:_DIGITS]}"


def find_own_wheel(root: Path, package: ProjectPackage, python: str) -> Path | None:
    """Return the wheel of a package's source in the folder; None if there is none that fits ``python``.

    For a source distribution of an index, a wheel of its version without a build tag counts too: a person built it.
    """
    folder = wheels_of(root)
    if is_wheel(package):
        assert isinstance(package.source, Archive)
        path = folder / wheel_name(package.source)
        return path if path.is_file() else None
    own = build_tag(package)
    fitting = {tag: path for tag, path in _wheels(folder, package, python) if tag in (own, "")}
    return fitting.get(own) or (fitting.get("") if isinstance(package.source, Sdist) else None)


def unused_wheels(root: Path, lock_texts: Iterable[str]) -> list[str]:
    """Return the names of wheels in the folder whose hashes no lock has."""
    wheels = sorted(wheels_of(root).glob("*.whl"))
    text = "\n".join(lock_texts) if wheels else ""
    return [path.name for path in wheels if file_digest(path) not in text]


def _wheels(folder: Path, package: ProjectPackage, python: str) -> Iterator[tuple[str, Path]]:
    """Yield the build tags and paths of a package's wheels that fit ``python``."""
    fitting_tags = wheel_tags(python)
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, build, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        same = name == package.name and (not package.version or version == Version(package.version))
        if same and any(tag in fitting_tags for tag in tags):
            yield "".join(map(str, build)), path
