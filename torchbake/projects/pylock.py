"""Read a lock of PEP 751, ``pylock.toml``: its packages for one Python on x86_64 Linux.

Source of the format: https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

import posixpath
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
from torchbake.lock.uv import uv_platform
from torchbake.lock.wheel_tags import wheel_tags
from torchbake.matrix.spec import AMD64
from torchbake.projects.packages import Archive, Folder, GitSource, ProjectPackage, Sdist, Source, WheelSource

_DAMAGED = re.compile(r"Failed to parse `uv\.lock`\s+cause: TOML parse error at line (\d+)")
_QUOTED = re.compile(r"`([^`]+)`")
_ENTRY = re.compile(r"packages\[(\d+)\]")  # in a message of `packaging`
_TOML_NAME, _TOML_VERSION = re.compile(r'name = "([^"]+)"'), re.compile(r'version = "([^"]+)"')
_MOST_TAGS = 4  # of a package's wheels, in a message
_LAST_PATCH = 40  # no minor version of CPython has had more patch releases


@dataclass(frozen=True, kw_only=True)
class LockLines:
    """The lines of packages in a lock, by name and version or by name alone, and of ``requires-python``."""

    path: str
    numbers: Mapping[tuple[str, str], int]

    def place(self, name: str, version: str = "") -> str:
        """Return the path with the line, such as ``trainer/uv.lock:340``; without it if it is unknown."""
        number = self.number(name, version)
        return f"{self.path}:{number}" if number else self.path

    def number(self, name: str, version: str = "") -> int:
        """Return the line of a package; 0 if it is unknown."""
        return self.numbers.get((name, version)) or self.numbers.get((name, ""), 0)

    def located(self, message: str) -> str:
        """Return uv's message, which begins with the path, with the line that it names, or that of a package."""
        if damaged := _DAMAGED.search(message):
            return message.replace(self.path, f"{self.path}:{damaged[1]}", 1)
        names = (match for match in _QUOTED.findall(message) if (match, "") in self.numbers)
        name = next(names, None)
        return message.replace(self.path, self.place(name), 1) if name else message


def lines_of(text: str, path: str) -> LockLines:
    """Find the lines of packages in a uv.lock or a pylock.toml."""
    numbers = dict[tuple[str, str], int]()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("requires-python ="):
            numbers.setdefault(("requires-python", ""), number)
        elif match := _TOML_NAME.fullmatch(line):
            following = _TOML_VERSION.fullmatch(lines[number] if number < len(lines) else "")
            numbers.setdefault((match[1], ""), number)
            numbers.setdefault((match[1], following[1] if following else ""), number)
    return LockLines(path=path, numbers=numbers)


def parse_pylock(text: str, path: str) -> Pylock:
    """Parse and validate a lock; ``path`` is for messages. Raises LockError with the line."""
    hint = "Make it again with the tool that wrote it, for example: uv export --format pylock.toml -o pylock.toml"
    try:
        return Pylock.from_dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise LockError(f"{path}{line_in(error)}: is not TOML: {error}.", hint=hint) from None
    except PylockValidationError as error:
        raise LockError(f"{path}{_line_of_entry(text, str(error))}: {error}.", hint=hint) from None


def line_in(error: tomllib.TOMLDecodeError) -> str:
    """Return ``:LINE`` of an error in TOML; empty if it has none."""
    match = re.search(r"at line (\d+)", str(error))
    return f":{match[1]}" if match else ""


def select_packages(
    lock: Pylock, lines: LockLines, python: str, *, extras: Collection[str] = (), groups: Collection[str] = ()
) -> tuple[ProjectPackage, ...]:
    """Return the packages of a lock that an image with this Python gets, sorted by name and without ``via``.

    ``lines`` are the places of packages, for messages. Raises LockError if a package has no file that fits, or no
    SHA-256.
    """
    version = first_patch(lock.requires_python or SpecifierSet(), python)  # as markers see it
    if not version:
        raise LockError(
            f"{lines.place('requires-python')}: requires Python {lock.requires_python}, but the base has {python}.",
            hint="Give the row a base with such a Python, or lock the project for the base's Python.",
        )
    try:
        selected = lock.select(
            environment=markers_of(version),
            tags=list(wheel_tags(python)),
            extras=extras,
            dependency_groups=list(groups),
        )
        packages = [_package(package, source, lines) for package, source in selected]
    except PylockSelectError as error:
        raise _refused(lock, error, lines, python) from None
    return tuple(sorted(packages, key=lambda package: package.name))


def first_patch(specifier: SpecifierSet, python: str) -> str:
    """Return the first patch release of a Python such as ``3.11`` that fits; empty if none does.

    The base's distribution decides about the patch release.
    """
    patches = (f"{python}.{patch}" for patch in range(_LAST_PATCH))
    return next(filter(specifier.contains, patches), "")


def _refused(lock: Pylock, error: PylockSelectError, lines: LockLines, python: str) -> LockError:
    match = _ENTRY.search(str(error))
    package = lock.packages[int(match[1])] if match else None
    hint = f"An image needs packages for Python {python} on x86_64 Linux: lock the project for it."
    if package is None:
        return LockError(f"{lines.path}: {error}.", hint=hint)
    place = lines.place(package.name, str(package.version))
    if not package.wheels or str(error).startswith("Multiple"):
        return LockError(f"{place}: {re.sub(' at ' + _ENTRY.pattern, '', str(error))}.", hint=hint)
    tags = sorted({wheel.filename.removesuffix(".whl").split("-", 2)[2] for wheel in package.wheels})
    more = f" and {len(tags) - _MOST_TAGS} more" if len(tags) > _MOST_TAGS else ""
    return LockError(
        f"{place}: {package.name} {package.version} has no source, and no wheel for Python {python} on "
        f"{uv_platform(AMD64)}, but for {', '.join(tags[:_MOST_TAGS])}{more}.",
        hint=hint,
    )


def markers_of(version: str) -> Environment:
    """Return the values of markers for a CPython such as ``3.11.0`` on x86_64 Linux."""
    return Environment(
        implementation_name="cpython",
        implementation_version=version,
        os_name="posix",
        platform_machine="x86_64",
        platform_release="",
        platform_system="Linux",
        platform_version="",
        python_full_version=version,
        platform_python_implementation="CPython",
        python_version=".".join(version.split(".")[:2]),
        sys_platform="linux",
    )


def _package(
    package: Package,
    source: PackageVcs | PackageDirectory | PackageArchive | PackageWheel | PackageSdist,
    lines: LockLines,
) -> ProjectPackage:
    hashes = [file.hashes for file in (*(package.wheels or ()), *([package.sdist] if package.sdist else ()))]
    if isinstance(source, PackageArchive):
        hashes.append(source.hashes)
    missing = [each for each in hashes if "sha256" not in each]
    if missing:
        raise LockError(
            f"{lines.place(package.name, str(package.version))}: {package.name} has no SHA-256, "
            f"but {', '.join(missing[0]) or 'no hash'}.",
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
            return GitSource(
                url=source.url or source.path or "",  # with a user name, as `ssh:` addresses have it
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
            return WheelSource(filename=source.name or unquote(posixpath.basename(urlsplit(url).path)), url=url)
        case PackageSdist():
            return Sdist(url=source.url or source.path or "")


def _line_of_entry(text: str, message: str) -> str:
    """Return ``:LINE`` of the entry that a message of `packaging` names; empty if it names none."""
    match = _ENTRY.search(message)
    starts = [number for number, line in enumerate(text.splitlines(), 1) if line.strip() == "[[packages]]"]
    return f":{starts[int(match[1])]}" if match and int(match[1]) < len(starts) else ""
