"""Read a lock of PEP 751, ``pylock.toml``: its packages for one Python on x86_64 Linux.

Source of the format: https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

import posixpath
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from packaging.markers import Environment
from packaging.pylock import (
    Package,
    PackageArchive,
    PackageDirectory,
    PackageSdist,
    PackageVcs,
    PackageWheel,
    Pylock,
    PylockSelectError,
    PylockValidationError,
)
from packaging.specifiers import SpecifierSet

from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import without_login
from torchbake.lock.wheel_tags import wheel_tags
from torchbake.projects.packages import Archive, Folder, Git, ProjectPackage, Sdist, Source, Wheel

_ENTRY = re.compile(r"packages\[(\d+)\]")  # in a message of `packaging`
_LAST_PATCH = 40  # no minor version of CPython has had more patch releases


def parse_pylock(text: str, path: str) -> Pylock:
    """Parse and validate a lock; ``path`` is for messages. Raises LockError with the line."""
    hint = "Make it again with the tool that wrote it, for example: uv export --format pylock.toml -o pylock.toml"
    try:
        return Pylock.from_dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise LockError(f"{path}{_line_in(error)}: is not TOML: {error}.", hint=hint) from None
    except PylockValidationError as error:
        raise LockError(f"{path}{_line_of_entry(text, str(error))}: {error}.", hint=hint) from None


def select_packages(
    lock: Pylock, text: str, path: str, python: str, *, extras: Collection[str] = (), groups: Collection[str] = ()
) -> tuple[ProjectPackage, ...]:
    """Return the packages of a lock that an image with this Python gets, sorted by name and without ``via``.

    ``text`` and ``path`` are those of the lock, for messages. Raises LockError if a package has no file that fits, or
    no SHA-256.
    """
    environment = environment_of(python, str(lock.requires_python or ""))
    if environment is None:
        raise LockError(
            f"{path}{_line(text, 'requires-python')}: requires Python {lock.requires_python}, but the base has {python}.",
            hint="Give the row a base with such a Python, or lock the project for this one.",
        )
    try:
        chosen = list(
            lock.select(
                environment=environment, tags=list(wheel_tags(python)), extras=extras, dependency_groups=list(groups)
            )
        )
    except PylockSelectError as error:
        raise LockError(
            f"{path}{_line_of_entry(text, str(error))}: {error}.",
            hint=f"An image needs packages for Python {python} on x86_64 Linux: lock the project for it.",
        ) from None
    packages = (_package(package, source, path) for package, source in chosen)
    return tuple(sorted(packages, key=lambda package: package.name))


def environment_of(python: str, requires_python: str = "") -> Environment | None:
    """Return the values of markers for a base's Python on x86_64 Linux; None if ``requires_python`` excludes it.

    The base's distribution decides about the patch release. Markers see the first one that the lock allows.
    """
    specifier = SpecifierSet(requires_python)
    patches = (f"{python}.{patch}" for patch in range(_LAST_PATCH))
    full = next((version for version in patches if specifier.contains(version)), None)
    if full is None:
        return None
    return Environment(
        implementation_name="cpython",
        implementation_version=full,
        os_name="posix",
        platform_machine="x86_64",
        platform_release="",
        platform_system="Linux",
        platform_version="",
        python_full_version=full,
        platform_python_implementation="CPython",
        python_version=python,
        sys_platform="linux",
    )


def lines_of(text: str, packages: Iterable[ProjectPackage]) -> dict[str, int]:
    """Return the line of each package, and of ``requires-python``, in a uv.lock or a pylock.toml."""
    versions = {package.name: package.version for package in packages}
    lines = text.splitlines()
    places = dict[str, int]()
    for number, line in enumerate(lines, 1):
        if line.startswith("requires-python ="):
            places.setdefault("requires-python", number)
        match = re.fullmatch(r'name = "([^"]+)"', line)
        if match and match[1] in versions:
            following = lines[number] if number < len(lines) else ""
            exact = following == f'version = "{versions[match[1]]}"'
            if exact or match[1] not in places:
                places[match[1]] = number
    return places


def _package(
    package: Package,
    source: PackageVcs | PackageDirectory | PackageArchive | PackageWheel | PackageSdist,
    path: str,
) -> ProjectPackage:
    hashes = [file.hashes for file in (*(package.wheels or ()), *([package.sdist] if package.sdist else ()))]
    if isinstance(source, PackageArchive):
        hashes.append(source.hashes)
    missing = [each for each in hashes if "sha256" not in each]
    if missing:
        raise LockError(
            f"{path}: {package.name} {package.version} has no SHA-256, but {', '.join(missing[0]) or 'no hash'}.",
            hint="Lock it from an index that has SHA-256 hashes.",
        )
    return ProjectPackage(
        name=package.name,
        version=str(package.version or ""),
        hashes=tuple(sorted({f"sha256:{each['sha256']}" for each in hashes})),
        index=without_login(package.index or ""),
        size=(source.size or 0) if isinstance(source, PackageWheel | PackageArchive) else 0,
        source=_source(source),
    )


def _source(source: PackageVcs | PackageDirectory | PackageArchive | PackageWheel | PackageSdist) -> Source:
    match source:
        case PackageVcs():
            return Git(
                url=without_login(source.url or source.path or ""),
                commit=source.commit_id,
                subdirectory=source.subdirectory or "",
            )
        case PackageDirectory():
            return Folder(
                path=posixpath.normpath(posixpath.join(source.path, source.subdirectory or "")),
                editable=bool(source.editable),
            )
        case PackageArchive():
            return Archive(url=source.url or source.path or "", subdirectory=source.subdirectory or "")
        case PackageWheel():
            url = source.url or source.path or ""
            return Wheel(filename=source.name or unquote(posixpath.basename(urlsplit(url).path)), url=url)
        case PackageSdist():
            return Sdist(url=source.url or source.path or "")


def _line_in(error: tomllib.TOMLDecodeError) -> str:
    match = re.search(r"at line (\d+)", str(error))
    return f":{match[1]}" if match else ""


def _line_of_entry(text: str, message: str) -> str:
    """Return ``:LINE`` of the entry that a message of `packaging` names; empty if it names none."""
    match = _ENTRY.search(message)
    starts = [number for number, line in enumerate(text.splitlines(), 1) if line.strip() == "[[packages]]"]
    return f":{starts[int(match[1])]}" if match and int(match[1]) < len(starts) else ""


def _line(text: str, key: str) -> str:
    number = next((number for number, line in enumerate(text.splitlines(), 1) if line.startswith(f"{key} =")), 0)
    return f":{number}" if number else ""


def with_via(packages: Iterable[ProjectPackage], via: Mapping[str, Collection[str]]) -> tuple[ProjectPackage, ...]:
    """Return packages with the packages that require them, as far as they are packages of the lock themselves."""
    known = tuple(packages)
    names = {package.name for package in known}
    return tuple(replace(each, via=tuple(sorted(names & set(via.get(each.name, ()))))) for each in known)
