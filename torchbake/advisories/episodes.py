"""Vulnerabilities of an image over its releases: open since when, fixed by which release, after how many days. Pure.

All releases are judged by the same advisories, those of today.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import median

from torchbake.advisories.finding import Finding, Severity
from torchbake.advisories.match import first_day


@dataclass(frozen=True, kw_only=True)
class JudgedRelease:
    """A release: its immutable tag, the day of its record, and the vulnerabilities of its packages."""

    tag: str
    day: date
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A vulnerability of an image, from the ``first`` release with it to the release without it.

    ``packages`` are the names of all packages that have it in these releases. ``end`` is the first later release
    without it; None if the newest release has it.
    """

    image: str
    id: str
    kind: str
    packages: tuple[str, ...]
    severity: Severity
    fixed: str
    published: date | None
    fixed_on: date | None
    note: str
    first: JudgedRelease
    end: JudgedRelease | None = None

    @property
    def open_since(self) -> date:
        """The day from which a release had a vulnerability that was public, as far as the advisories have the day."""
        return max(self.first.day, self.published or self.first.day)

    @property
    def fix_since(self) -> date | None:
        """The day from which the image could have had the fix; None if no advisory has the day of the fix."""
        return max(self.first.day, self.fixed_on) if self.fixed_on else None

    def days(self, today: date) -> int | None:
        """Return the days from the fix to the release with it, or to today; None if the day of the fix is not known."""
        last = self.end.day if self.end else today
        return max(0, (last - self.fix_since).days) if self.fix_since else None


@dataclass(frozen=True, kw_only=True)
class ServiceLevel:
    """Numbers of the vulnerabilities of one severity. Days are from the publication of a fix in the distribution.

    - ``closures``: have a release without them, after ``median`` and at most ``most`` days
    - ``waiting``: are open and have a fix, for at most ``longest`` days
    - ``unfixed``: are open and have no fix

    Days are None if no fix has a day.
    """

    severity: Severity
    closures: int
    median: float | None
    most: int | None
    waiting: int
    longest: int | None
    unfixed: int


def episodes_of(image: str, releases: Sequence[JudgedRelease]) -> list[Episode]:
    """Return the vulnerabilities of an image's releases, which are in their order, the oldest first."""
    running: dict[tuple[str, str], Episode] = {}
    past = list[Episode]()
    for release in releases:
        groups = by_number(release.findings)
        past += [replace(running.pop(key), end=release) for key in [*running] if key not in groups]
        for key, findings in groups.items():
            earlier = running.get(key)
            running[key] = _episode(image, findings, release)
            if earlier:
                names = tuple(sorted({*earlier.packages, *running[key].packages}))
                running[key] = replace(running[key], first=earlier.first, packages=names)
    return [*past, *running.values()]


def _episode(image: str, findings: Sequence[Finding], release: JudgedRelease) -> Episode:
    """Return the vulnerability of a release's packages; ``findings`` are of one number."""
    return Episode(
        image=image, id=findings[0].id, kind=findings[0].kind,
        packages=tuple(sorted({one.name for one in findings})),
        severity=max(one.severity for one in findings),
        fixed=next((one.fixed for one in findings if one.fixed), ""),
        published=first_day(*(one.published for one in findings)),
        fixed_on=first_day(*(one.fixed_on for one in findings)),
        note=next((one.note for one in findings if one.note), ""),
        first=release,
    )  # fmt: skip


def service_levels(episodes: Iterable[Episode], today: date) -> list[ServiceLevel]:
    """Return the numbers for each severity that occurs, the highest first."""
    groups: dict[Severity, list[Episode]] = {}
    for one in episodes:
        groups.setdefault(one.severity, []).append(one)
    return [_level(severity, groups[severity], today) for severity in sorted(groups, reverse=True)]


def _level(severity: Severity, episodes: Sequence[Episode], today: date) -> ServiceLevel:
    past = [one for one in episodes if one.end]
    waiting = [one for one in episodes if not one.end and one.fixed]
    days, longest = _known_days(past, today), _known_days(waiting, today)
    return ServiceLevel(
        severity=severity, closures=len(past), median=median(days) if days else None, most=max(days, default=None),
        waiting=len(waiting), longest=max(longest, default=None),
        unfixed=sum(not one.end and not one.fixed for one in episodes),
    )  # fmt: skip


def _known_days(episodes: Iterable[Episode], today: date) -> list[int]:
    return [days for one in episodes if (days := one.days(today)) is not None]


def by_number(findings: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    """Group findings by the kind of their packages and their number."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.kind, one.id), []).append(one)
    return groups
