"""Reports of Grype in its own JSON: `grype IMAGE -o json`. Pure.

https://github.com/anchore/grype/tree/main/schema/grype/json
"""

from datetime import date
from pathlib import Path
from typing import Any

from pydantic import Field

from torchbake.advisories.finding import Finding, Kind, severity_of
from torchbake.advisories.scan_report import (
    BOTH,
    ScannedModel,
    ScanReport,
    day_of,
    digests_in,
    numbers_of,
    package_name,
)

KINDS: dict[str, Kind] = {"deb": "debian", "python": "python"}  # other types of Grype are "other"


class GrypeFixDate(ScannedModel):
    """The day of a fixed version."""

    version: str = ""
    date: str | None = None


class GrypeFix(ScannedModel):
    """The fixed versions, if there are any."""

    versions: tuple[str, ...] | None = None
    state: str = ""
    available: tuple[GrypeFixDate, ...] | None = None


class GrypeNumber(ScannedModel):
    """A related number, such as the CVE of a GHSA."""

    id: str


class GrypeVulnerability(ScannedModel):
    """A vulnerability."""

    id: str = Field(min_length=1)
    severity: str = ""
    published: str | None = Field(None, alias="publishedDate")
    fix: GrypeFix = GrypeFix()
    advisories: tuple[GrypeNumber, ...] | None = None


class GrypeArtifact(ScannedModel):
    """A package."""

    name: str = Field(min_length=1)
    version: str = ""
    type: str = ""


class GrypeMatch(ScannedModel):
    """A vulnerability of a package."""

    vulnerability: GrypeVulnerability
    related: tuple[GrypeNumber, ...] | None = Field(None, alias="relatedVulnerabilities")
    artifact: GrypeArtifact


class GrypeImage(ScannedModel):
    """The digests and names of the image."""

    user_input: str = Field("", alias="userInput")
    image: str = Field("", alias="imageID")
    manifest: str = Field("", alias="manifestDigest")
    tags: tuple[str, ...] | None = None
    digests: tuple[str, ...] | None = Field(None, alias="repoDigests")


class GrypeSource(ScannedModel):
    """The image that was scanned; for a folder the target is a path."""

    type: str = ""
    target: GrypeImage | str | None = None


class GrypeStatus(ScannedModel):
    """The state of the database."""

    built: str | None = None


class GrypeDatabase(GrypeStatus):
    """The database of vulnerabilities; since version 6 its day is in its status."""

    status: GrypeStatus | None = None


class GrypeDescriptor(ScannedModel):
    """The scanner: the time of the scan, and its database."""

    timestamp: str | None = None
    database: GrypeDatabase | None = Field(None, alias="db")

    @property
    def day(self) -> date | None:
        """The day of the scan or of the database, whichever is older."""
        database = self.database or GrypeDatabase()
        moments = (self.timestamp, database.built, database.status.built if database.status else None)
        return min(filter(None, map(day_of, moments)), default=None)


class GrypeFile(ScannedModel):
    """The whole file. Matches that Grype's own settings leave out are read too: the gate decides."""

    matches: tuple[GrypeMatch, ...]
    ignored: tuple[GrypeMatch, ...] | None = Field(None, alias="ignoredMatches")
    source: GrypeSource | None = None
    descriptor: GrypeDescriptor = GrypeDescriptor()


def is_grype(data: dict[str, Any]) -> bool:
    """Check if a JSON object is a report of Grype."""
    descriptor = data.get("descriptor")
    return isinstance(descriptor, dict) and descriptor.get("name") == "grype" and "matches" in data


def read_grype(path: Path, data: dict[str, Any]) -> ScanReport:
    """Read a report. Raises ValidationError."""
    file = GrypeFile.model_validate(data)
    target = file.source.target if file.source else None
    image = target if isinstance(target, GrypeImage) else GrypeImage(user_input=target or "")
    return ScanReport(
        path=path,
        scanner="Grype",
        names=tuple(dict.fromkeys([image.user_input, *(image.tags or ())])),
        digests=digests_in([image.image, image.manifest, image.user_input, *(image.digests or ())]),
        findings=tuple(_finding(match, path) for match in (*file.matches, *(file.ignored or ()))),
        covers=BOTH,
        day=file.descriptor.day,
    )


def _finding(match: GrypeMatch, path: Path) -> Finding:
    vulnerability, package = match.vulnerability, match.artifact
    others = [one.id for one in (*(match.related or ()), *(vulnerability.advisories or ()))]
    number, aliases = numbers_of(vulnerability.id, others)
    fix = vulnerability.fix
    fixed = ", ".join(fix.versions or ()) if fix.state == "fixed" else ""
    kind = KINDS.get(package.type, "other")
    days = [day for one in fix.available or () if (day := day_of(one.date))]
    return Finding(
        kind=kind, name=package_name(kind, package.name), version=package.version, id=number, aliases=aliases,
        severity=severity_of(vulnerability.severity), fixed=fixed, published=day_of(vulnerability.published),
        source=str(path), fixed_on=min(days, default=None) if fixed else None,
    )  # fmt: skip
