"""``images/<base>.lock``: the Debian packages of all images on a base, with versions, paths and hashes. Pure."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from torchbake.core.digest import digest
from torchbake.core.file_format import UPGRADE, why_too_new
from torchbake.debian.steps import AptStep, apt_steps
from torchbake.errors import LockError
from torchbake.lock.lockfile import read_lock_text
from torchbake.matrix.platforms import words_of_base
from torchbake.matrix.spec import BaseSpec, Spec
from torchbake.oci.manifest import DIGEST
from torchbake.ui.command import Command

_FIELDS = ("name", "version", "architecture", "archive", "path", "size", "sha256")
_NAME, _VERSION = r"[a-z0-9][a-z0-9+.-]+", r"[A-Za-z0-9.+:~-]+"  # Debian policy 5.6.1 and 5.6.12
_LINE = re.compile(rf"{_NAME} {_VERSION} [a-z0-9-]+ (main|security) pool/[^\s]+\.deb \d+ [0-9a-f]{{64}}")


@dataclass(frozen=True, kw_only=True, order=True)
class DebianPackage:
    """A package file of an archive: ``main``, which has the suite and its updates, or ``security``.

    ``path`` is relative to the archive's mirror, ``size`` is in bytes, and ``sha256`` is in hex.
    """

    name: str
    version: str
    architecture: str
    archive: str
    path: str
    size: int
    sha256: str

    @property
    def line(self) -> str:
        """The package on one line of the lock."""
        return " ".join(str(getattr(self, field)) for field in _FIELDS)

    @property
    def source(self) -> str:
        """The name of the source package: a pool has a folder for each, as in pool/main/o/openssl/libssl3_….deb."""
        return self.path.split("/")[-2]

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Parse a line of the lock. Raises ValueError."""
        if not _LINE.fullmatch(line) or ".." in line:
            raise ValueError(line)
        values = dict(zip(_FIELDS, line.split(" "), strict=True))
        return cls(**values | {"size": int(values["size"])})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class DebianLock:
    """The packages of one base: of a bootstrapped ``base`` itself, and those of the steps, by `AptStep.key`.

    ``upgrade`` replaces packages of the base. ``digest`` is the base's own; a base of a registry is taken by it.
    """

    suite: str
    digest: str = ""
    base: tuple[DebianPackage, ...] = ()
    upgrade: tuple[DebianPackage, ...] = ()
    installs: Mapping[str, tuple[DebianPackage, ...]]

    @property
    def packages(self) -> dict[str, DebianPackage]:
        """Every package by name and architecture, such as ``git:amd64``."""
        steps = (self.base, self.upgrade, *self.installs.values())
        return {f"{one.name}:{one.architecture}": one for packages in steps for one in packages}

    def python(self, base: BaseSpec) -> str:
        """Return the version of the Python that images on the base get, such as ``3.11``; "" if it is no package."""
        one = next((each for each in self.packages.values() if each.name == base.python_package), None)
        match = re.match(r"(?:\d+:)?(\d+\.\d+)", one.version) if one else None
        return match[1] if match else ""

    @property
    def base_digest(self) -> str:
        """The digest of the base's packages, or its own, to compare it with the base of an earlier run."""
        return digest(package.line for package in self.base) if self.base else self.digest

    def changes(self, new: "DebianLock", steps: Sequence[AptStep]) -> "list[DebianChange]":
        """Return each package of an image's steps that has another version in a ``new`` lock."""
        before, after = (lock.part(steps) for lock in (self, new))
        return package_changes(before, after)

    def part(self, steps: Sequence[AptStep]) -> "DebianLock":
        """Return the lock for an image's steps alone. Raises LockError."""
        self.of(steps)
        return replace(self, installs={step.key: self.installs[step.key] for step in steps})

    def of(self, steps: Iterable[AptStep]) -> dict[str, tuple[DebianPackage, ...]]:
        """Return the packages of an image's steps, by name. The first step installs the upgrades. Raises LockError."""
        result = {}
        for step in steps:
            if step.key not in self.installs:
                raise LockError(
                    f"The lock of Debian packages lacks these: {' '.join(step.packages)}.",
                    hint=f"Lock again: {Command('lock', 'all --debian')}",
                )
            own = self.installs[step.key]
            names = {package.name for package in own}  # a version of the matrix, in place of the newest
            first = () if step.below else [package for package in self.upgrade if package.name not in names]
            result[step.name] = tuple(sorted({*first, *own}))
        return result

    def lines(self, spec: Spec) -> list[str]:
        """Return the lines of the lock for an image, each with the name of its step. Raises LockError."""
        steps = self.of(apt_steps(spec).values())
        return [f"{name} {package.line}" for name, packages in steps.items() for package in packages]


def debian_lock_path(root: Path, base: BaseSpec) -> Path:
    """Return the path of a base's lock."""
    return root / "images" / f"{base.id}.lock"


def find_debian_lock(root: Path, base: BaseSpec) -> DebianLock | None:
    """Read the lock of a base; None if it has none. Raises LockError, also for another suite or base."""
    path = debian_lock_path(root, base)
    if not path.exists():
        return None
    lock, again = parse_debian_lock(read_lock_text(path, "all --debian"), str(path)), Command("lock", "all --debian")
    if lock.suite != base.suite:
        raise LockError(
            f"{path}: has packages of {lock.suite}, and the matrix has {base.suite}.", hint=f"Make it again: {again}"
        )
    if base.digest and lock.digest != base.digest:
        push = Command("base", f"{words_of_base(base)} --push HOST/NAMESPACE")
        raise LockError(
            f"{path}: has packages for the base {lock.digest}, and {base.name} is {base.image}.",
            hint=f"Make it again: {again}. Or push its base: {push}",
        )
    return lock


def format_debian_lock(base: BaseSpec, lock: DebianLock) -> str:
    """Return the text of a lock: TOML with a package on each line."""
    lines = [
        f"# The Debian packages of images on {base.id}, by `torchbake lock --debian`. apt installs exactly these.",
        "# Name, version, architecture, archive, path below the mirror, bytes, SHA-256.",
        f'suite = "{lock.suite}"',
        f'digest = "{lock.digest}"',
        *_array("base", lock.base),
        *_array("upgrade", lock.upgrade),
        "",
        "[install]",
    ]
    for key, packages in sorted(lock.installs.items()):
        lines += _array(f'"{key}"', packages)
    return "\n".join(lines) + "\n"


def _array(key: str, packages: Iterable[DebianPackage]) -> list[str]:
    return [f"{key} = [", *(f'    "{package.line}",' for package in sorted(packages)), "]"]


def parse_debian_lock(text: str, path: str) -> DebianLock:
    """Parse a lock. Raises LockError."""
    try:
        raw = tomllib.loads(text)
        if newer := why_too_new("Debian lock", raw.get("format")):
            raise LockError(f"{path}: {newer}.", hint=UPGRADE)
        return DebianLock(
            suite=str(raw["suite"]),
            digest=_digest(raw["digest"], required=not raw["base"]),
            base=tuple(map(DebianPackage.from_line, raw["base"])),
            upgrade=tuple(map(DebianPackage.from_line, raw["upgrade"])),
            installs={key: tuple(map(DebianPackage.from_line, lines)) for key, lines in raw["install"].items()},
        )
    except (tomllib.TOMLDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LockError(
            f"{path}: is no lock of Debian packages: {error}", hint=f"Make it again: {Command('lock', 'all --debian')}"
        ) from None


def _digest(text: str, *, required: bool) -> str:
    if (text or required) and not DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest")
    return text


@dataclass(frozen=True, kw_only=True)
class DebianChange:
    """A package whose version differs in two locks; the ``old`` or the ``new`` one is None if a lock lacks it."""

    old: DebianPackage | None
    new: DebianPackage | None

    @property
    def line(self) -> str:
        """The change on one line: ``libssl3 3.0.17-1 -> 3.0.18-1 (security)``."""
        name = next(one.name for one in (self.old, self.new) if one)
        marker = " (security)" if self.new and self.new.archive == "security" else ""
        old, new = (self.old.version if self.old else "(new)"), (self.new.version if self.new else "(gone)")
        return f"{name} {old} -> {new}{marker}"


def package_changes(old: DebianLock, new: DebianLock) -> list[DebianChange]:
    """Return each package with another version, by name."""
    before, after = old.packages, new.packages
    pairs = [(before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())]
    return [DebianChange(old=one, new=other) for one, other in pairs if one != other]


def changes_of(old: DebianLock, new: DebianLock) -> list[str]:
    """Return a line for each package with another version, as `DebianChange.line`."""
    return [change.line for change in package_changes(old, new)]
