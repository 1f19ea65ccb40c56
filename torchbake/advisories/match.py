"""Known vulnerabilities of an image's packages, by feeds of advisories. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from torchbake.advisories.advisory import PYPI, Advisory
from torchbake.advisories.dated import DatedInput
from torchbake.advisories.finding import Finding
from torchbake.sbom.package_metadata import System
from torchbake.sbom.packages import ImagePackages, Package


@dataclass(frozen=True, kw_only=True)
class Feeds:
    """The advisories of all files that were read, by distribution and package.

    ``distributions`` have advisories, or could have: the file of a distribution without any still covers it. ``days``
    are those of the files.
    """

    advisories: Mapping[tuple[str, str], tuple[Advisory, ...]] = field(default_factory=dict)
    distributions: frozenset[str] = frozenset()
    days: tuple[DatedInput, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.distributions)

    def of(self, distribution: str, package: str) -> tuple[Advisory, ...]:
        """Return the advisories of a source package, or of a Python distribution."""
        return self.advisories.get((distribution, package), ())


def feeds_of(
    advisories: Iterable[Advisory], distributions: Iterable[str] = (), days: Iterable[DatedInput] = ()
) -> Feeds:  # fmt: skip
    """Group advisories by distribution and package."""
    groups: dict[tuple[str, str], list[Advisory]] = {}
    for one in advisories:
        groups.setdefault((one.distribution, one.package), []).append(one)
    names = {distribution for distribution, _ in groups} | {*distributions}
    return Feeds(
        advisories={key: tuple(own) for key, own in groups.items()}, distributions=frozenset(names), days=tuple(days)
    )  # fmt: skip


def findings_of(packages: ImagePackages, feeds: Feeds) -> tuple[Finding, ...]:
    """Return the vulnerabilities of an image's packages, sorted: one for each package, version and number.

    Packages whose distribution no feed has are not judged: see `uncovered`.
    """
    findings = (_finding(package, one) for package in packages.packages for one in _affecting(package, packages, feeds))
    return merge_findings(findings)


def uncovered(packages: ImagePackages, feeds: Feeds) -> dict[str, str]:
    """Return each kind of packages that no feed can judge, with the distribution that the feeds lack."""
    missing = {}
    for kind in ("debian", "python"):
        own = packages.of(kind)
        distribution = distribution_of(kind, packages.system)
        if own and distribution not in feeds.distributions:
            missing[kind] = distribution
    return missing


def distribution_of(kind: str, system: System) -> str:
    """Return the distribution of an image's packages of a kind, as `Advisory.distribution` names it."""
    return PYPI if kind == "python" else f"{system.id or 'unknown'}:{system.version or 'unknown'}"


def _affecting(package: Package, packages: ImagePackages, feeds: Feeds) -> Iterator[Advisory]:
    distribution = distribution_of(package.kind, packages.system)
    name, version = source_of(package)
    for one in feeds.of(distribution, name):
        if one.affects(version):
            yield one


def source_of(package: Package) -> tuple[str, str]:
    """Return the name and the version that advisories of a package use: for Debian those of its source package."""
    if package.kind == "python":
        return package.name, package.version
    return package.source or package.name, package.source_version or package.version


def _finding(package: Package, advisory: Advisory) -> Finding:
    return Finding(
        kind=package.kind, name=package.name, version=package.version, id=advisory.id, severity=advisory.severity,
        fixed=advisory.fixed_after(source_of(package)[1]), published=advisory.published, fixed_on=advisory.fixed_on,
        aliases=advisory.aliases, note=advisory.note, source=advisory.source,
    )  # fmt: skip


def merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Join findings of several files about the same package, version and number, and sort them."""
    merged: dict[tuple[str, ...], Finding] = {}
    for one in findings:
        key = (one.kind, one.name, one.version, one.id)
        merged[key] = _joined(merged[key], one) if key in merged else one
    return tuple(sorted(merged.values(), key=lambda one: (one.kind, one.name, one.version, one.id)))


def _joined(one: Finding, other: Finding) -> Finding:
    """Join two findings of one vulnerability: the higher severity, the first days, and any fix."""
    sources = dict.fromkeys([*one.source.split(", "), *other.source.split(", ")])
    return replace(
        one,
        severity=max(one.severity, other.severity),
        fixed=one.fixed or other.fixed,
        published=first_day(one.published, other.published),
        fixed_on=first_day(one.fixed_on, other.fixed_on),
        aliases=tuple(sorted({*one.aliases, *other.aliases} - {one.id})),
        note=one.note or other.note,
        source=", ".join(filter(None, sources)),
    )


def first_day(*days: date | None) -> date | None:
    """Return the first of the known days; None if none is known."""
    return min((day for day in days if day), default=None)
