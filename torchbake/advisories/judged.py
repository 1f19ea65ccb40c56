"""An image with the known vulnerabilities of its packages. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchbake.advisories.finding import Finding, Kind, Severity, plain_name
from torchbake.advisories.match import Feeds, findings_of, uncovered
from torchbake.sbom.packages import ImagePackages


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The findings that count: of packages of a ``kind``, from a severity on, and if ``fixable`` only with a fix.

    Findings of ``ignored`` packages do not count; these are names by `plain_name`.
    """

    kind: Kind | None = None
    severity: Severity = Severity.UNKNOWN
    fixable: bool = False
    ignored: frozenset[str] = frozenset()

    def takes(self, finding: Finding) -> bool:
        """Check if a finding counts."""
        return (
            self.kind in (None, finding.kind)
            and finding.severity >= self.severity
            and plain_name(finding.name) not in self.ignored
            and (bool(finding.fixed) or not self.fixable)
        )


@dataclass(frozen=True, kw_only=True)
class JudgedImage:
    """An image by the matrix's id, with its ``place``: a reference with the tag that was read.

    ``uncovered`` are the kinds of its packages that no advisory can judge, each with the distribution. If the packages
    could not be read, ``problem`` is the reason.
    """

    id: str
    place: str
    digest: str = ""
    findings: tuple[Finding, ...] = ()
    uncovered: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def json(self) -> dict[str, Any]:
        """The image as JSON, with null for unknown values."""
        return {
            "id": self.id,
            "place": self.place,
            "digest": self.digest or None,
            "problem": self.problem,
            "uncovered": dict(self.uncovered),
            "findings": [finding_json(one) for one in self.findings],
        }


def judge_image(
    name: str, place: str, packages: ImagePackages, feeds: Feeds, scope: Scope, *, digest: str = ""
) -> JudgedImage:  # fmt: skip
    """Return an image with the findings that count."""
    missing = {kind: own for kind, own in uncovered(packages, feeds).items() if scope.kind in (None, kind)}
    findings = tuple(filter(scope.takes, findings_of(packages, feeds)))
    return JudgedImage(id=name, place=place, digest=digest, findings=findings, uncovered=missing)


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON. Days are by ISO 8601."""
    return {
        "kind": finding.kind,
        "package": finding.name,
        "version": finding.version,
        "id": finding.id,
        "severity": finding.severity.word,
        "fixed": finding.fixed or None,
        "published": finding.published.isoformat() if finding.published else None,
        "fixed_on": finding.fixed_on.isoformat() if finding.fixed_on else None,
        "aliases": list(finding.aliases),
        "note": finding.note,
        "source": finding.source,
    }
