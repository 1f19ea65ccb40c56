"""Newer Debian packages for locked bases, for `list --due` and `update`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.commands._debian_lock import debian_resolver
from torchbake.debian.lockfile import DebianLock, find_debian_lock
from torchbake.debian.steps import apt_steps
from torchbake.errors import TorchbakeError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, Spec, bases_of
from torchbake.release.due import DueFinding

_MOST_CHANGES = 3  # packages that a reason names


@dataclass(frozen=True, kw_only=True)
class NewerLock:
    """The lock of a base, and the lock that apt's suites give today on the same base."""

    base: BaseSpec
    old: DebianLock
    new: DebianLock

    def changes(self, spec: Spec) -> list[str]:
        """Return a line for each package of an image that has another version today. Raises LockError."""
        return self.old.changes(self.new, [*apt_steps(spec).values()])


def newer_locks(project: Project, bases: Iterable[BaseSpec]) -> dict[str, NewerLock]:
    """Resolve the packages of locked bases again, and return the locks by the base's name.

    Bases without a lock are left out. Raises EngineError, BaseError and LockError.
    """
    locked = [(base, lock) for base in bases if (lock := find_debian_lock(project.root, base))]
    if not locked:
        return {}
    resolver = debian_resolver(project)
    return {
        base.name: NewerLock(base=base, old=lock, new=resolver.resolve(base, lock, upgrade=False))
        for base, lock in locked
    }


def with_fixes(project: Project, specs: Sequence[Spec], findings: Mapping[str, DueFinding]) -> dict[str, DueFinding]:
    """Add the images whose base has newer Debian packages to the due ones.

    Raises a TorchbakeError if apt cannot be asked, since the answer would lack fixes.
    """
    try:
        newer = newer_locks(project, bases_of(specs))
    except TorchbakeError as error:
        hint = f"{error.hint} " if error.hint else ""
        error.hint = f"{hint}To leave out newer Debian packages and bases: --bases keep"
        raise
    locks = {spec.id: newer[spec.base.name] for spec in specs if spec.base.name in newer}
    return with_changes(findings, {spec.id: locks[spec.id].changes(spec) for spec in specs if spec.id in locks})


def with_changes(findings: Mapping[str, DueFinding], changes: Mapping[str, Sequence[str]]) -> dict[str, DueFinding]:
    """Add the images with changed packages, by lines for each image, to the due ones."""
    result = dict(findings)
    for name, lines in changes.items():
        if lines:
            more = f", and {len(lines) - _MOST_CHANGES} more" if len(lines) > _MOST_CHANGES else ""
            reason = ", ".join(lines[:_MOST_CHANGES]) + more
            earlier = f"{findings[name].reason}; " if findings[name].due else ""
            result[name] = DueFinding(due=True, reason=earlier + reason)
    return result
