"""The packages of a project's lock for one Python on x86_64 Linux."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class WheelSource:
    """A wheel of an index that fits the Python. ``url`` is the address in the lock; empty if the lock has none."""

    filename: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Sdist:
    """A source distribution of an index; no wheel of the version fits."""

    url: str


@dataclass(frozen=True, kw_only=True)
class GitSource:
    """A commit of a git repository; ``subdirectory`` is the package's folder in it."""

    url: str
    commit: str
    subdirectory: str = ""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A wheel or a source archive by its address, or by its path relative to the project's folder."""

    url: str
    subdirectory: str = ""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder with a package's source, relative to the project's folder; "." for the project itself."""

    path: str
    editable: bool = False


Source: TypeAlias = WheelSource | Sdist | GitSource | Archive | Folder


@dataclass(frozen=True, kw_only=True)
class ProjectPackage:
    """One package of a project's lock.

    Folders have no ``version``: it is empty. The ``hashes`` (``sha256:…``) are sorted. The packages of ``via`` require
    this package; if only the project requires it, there are none. The ``index`` is an address without a login, or
    empty. The ``size`` is that of the fitting wheel in bytes; 0 if it is unknown.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...] = ()
    index: str = ""
    size: int = 0
    source: Source


@dataclass(frozen=True, kw_only=True)
class ProjectLock:
    """The packages of a project's lock for one Python on x86_64 Linux, sorted by name.

    The ``path`` of the lock is relative to the matrix's folder. The ``lines`` are those of packages and of
    ``requires-python`` in the lock. The specifier ``requires_python`` (``>=3.11``) may be empty.
    """

    path: str
    packages: tuple[ProjectPackage, ...]
    requires_python: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, ProjectPackage]:
        return {package.name: package for package in self.packages}

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the project's own packages, relative to the project, sorted."""
        return tuple(sorted(each.source.path for each in self.packages if isinstance(each.source, Folder)))

    def place(self, name: str) -> str:
        """Return the lock's path with the line of a package (``trainer/uv.lock:340``); without it if unknown."""
        return f"{self.path}:{self.lines[name]}" if name in self.lines else self.path
