"""Newer Debian packages for locked bases, for `list --due` and `update`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchbake.advisories.codenames import distribution_of_suite
from torchbake.advisories.finding import Severity
from torchbake.advisories.fixes import fixed_by, with_numbers
from torchbake.advisories.match import Feeds
from torchbake.commands._debian_lock import debian_resolver
from torchbake.debian.lockfile import DebianChange, DebianLock, find_debian_lock, package_changes
from torchbake.debian.steps import apt_steps
from torchbake.errors import TorchbakeError
from torchbake.matrix.platforms import bases_of
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, Spec
from torchbake.release.due import DueFinding
from torchbake.ui import console

_MOST_CHANGES = 3  # packages that a reason names


@dataclass(frozen=True, kw_only=True)
class NewerLock:
    """The lock of a base, and the lock that apt's suites give today on the same base."""

    base: BaseSpec
    old: DebianLock
    new: DebianLock

    def changes(self, spec: Spec) -> list[DebianChange]:
        """Return each package of an image that has another version today. Raises LockError."""
        return self.old.changes(self.new, [*apt_steps(spec).values()])

    def all_changes(self, feeds: Feeds) -> list["FixedChange"]:
        """Return each package of the lock that has another version today."""
        return [self.fixed(change, feeds) for change in package_changes(self.old, self.new)]

    def fixed(self, change: DebianChange, feeds: Feeds) -> "FixedChange":
        distribution = distribution_of_suite(self.base.distribution, self.base.suite)
        return FixedChange(change=change, vulnerabilities=fixed_by(change, distribution, feeds))


@dataclass(frozen=True, kw_only=True)
class FixedChange:
    """A package with another version, and the known vulnerabilities that the old version alone has."""

    change: DebianChange
    vulnerabilities: Mapping[str, Severity]

    @property
    def line(self) -> str:
        """The change on one line: ``libssl3 3.0.17-1 -> 3.0.18-1 (security): CVE-2025-1234 high``."""
        return with_numbers(self.change.line, self.vulnerabilities)

    @property
    def urgency(self) -> Severity:
        """The highest severity."""
        return max(self.vulnerabilities.values(), default=Severity.UNKNOWN)


def newer_locks(project: Project, bases: Iterable[BaseSpec]) -> dict[str, NewerLock]:
    """Resolve the packages of locked bases again, and return the locks by the base's id.

    Bases without a lock are left out. Raises EngineError, BaseError and LockError.
    """
    locked = [(base, lock) for base in bases if (lock := find_debian_lock(project.root, base))]
    if not locked:
        return {}
    resolver = debian_resolver(project)
    return {
        base.id: NewerLock(base=base, old=lock, new=resolver.resolve(base, lock, upgrade=False))
        for base, lock in locked
    }


def with_fixes(
    project: Project, specs: Sequence[Spec], findings: Mapping[str, DueFinding], feeds: Feeds
) -> dict[str, DueFinding]:
    """Add the images whose base has newer Debian packages to the due ones, with the fixed vulnerabilities of ``feeds``.

    Raises a TorchbakeError if apt cannot be asked, since the answer would lack fixes.
    """
    try:
        newer = newer_locks(project, bases_of(specs))
    except TorchbakeError as error:
        hint = f"{error.hint} " if error.hint else ""
        error.hint = f"{hint}To leave out newer Debian packages and bases: --bases keep"
        raise
    say_uncovered([lock.base for lock in newer.values()], feeds)
    locks = {spec.id: newer[spec.base.id] for spec in specs if spec.base.id in newer}
    changes = {
        spec.id: [locks[spec.id].fixed(change, feeds) for change in locks[spec.id].changes(spec)]
        for spec in specs
        if spec.id in locks
    }
    return with_reasons(findings, {name: _reason(each) for name, each in changes.items() if each})


def with_reasons(findings: Mapping[str, DueFinding], reasons: Mapping[str, str]) -> dict[str, DueFinding]:
    """Add the images with a reason, by their ids, to the due ones."""
    result = dict(findings)
    for name, reason in reasons.items():
        earlier = f"{findings[name].reason}; " if findings[name].due else ""
        result[name] = DueFinding(due=True, reason=earlier + reason)
    return result


def say_uncovered(bases: Iterable[BaseSpec], feeds: Feeds) -> None:
    """Say for which bases the advisories have no vulnerabilities, as a line without a number means nothing there."""
    distributions = {one.name: distribution_of_suite(one.distribution, one.suite) for one in bases}
    missing = [name for name, distribution in distributions.items() if distribution not in feeds.distributions]
    if feeds and missing:
        console.say(f"The advisories are of other releases than {', '.join(missing)}.", style="yellow")


def _reason(changes: Sequence[FixedChange]) -> str:
    """Name the most urgent changes."""
    urgent = sorted(changes, key=lambda one: (-one.urgency, not one.vulnerabilities))  # else by name, as they are
    with_names = any(one.vulnerabilities for one in urgent[:_MOST_CHANGES])
    return first_of([one.line for one in urgent], "; " if with_names else ", ")


def first_of(lines: Sequence[str], joint: str = ", ") -> str:
    """Return the first changes in one line, and the number of others."""
    more = f", and {len(lines) - _MOST_CHANGES} more" if len(lines) > _MOST_CHANGES else ""
    return joint.join(lines[:_MOST_CHANGES]) + more
