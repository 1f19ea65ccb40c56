"""Reports of Trivy in its own JSON: `trivy image --format json`. Pure.

https://trivy.dev/latest/docs/configuration/reporting/#json
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from torchbake.advisories.finding import Finding, Kind, severity_of
from torchbake.advisories.scan_report import (
    ScannedModel,
    ScanReport,
    day_of,
    digests_in,
    numbers_of,
    package_name,
)

_DEBIAN = ("debian", "ubuntu")
_PYTHON = ("python-pkg", "pip", "pipenv", "poetry", "uv")
_PACKAGES = ("os-pkgs", "lang-pkgs")


class TrivyVulnerability(ScannedModel):
    """A vulnerability of a package."""

    id: str = Field(alias="VulnerabilityID", min_length=1)
    package: str = Field(alias="PkgName", min_length=1)
    installed: str = Field("", alias="InstalledVersion")
    fixed: str = Field("", alias="FixedVersion")
    severity: str = Field("", alias="Severity")
    published: str | None = Field(None, alias="PublishedDate")
    vendor_ids: tuple[str, ...] | None = Field(None, alias="VendorIDs")


class TrivySuppressed(ScannedModel):
    """A finding that `.trivyignore` or a VEX document hides; it is only written with `--show-suppressed`."""

    kind: str = Field("", alias="Type")
    finding: dict[str, Any] = Field(default_factory=dict, alias="Finding")


class TrivyResult(ScannedModel):
    """The findings of one list of packages."""

    kind: str = Field("", alias="Class")
    type: str = Field("", alias="Type")
    vulnerabilities: tuple[TrivyVulnerability, ...] | None = Field(None, alias="Vulnerabilities")
    suppressed: tuple[TrivySuppressed, ...] | None = Field(None, alias="ExperimentalModifiedFindings")


class TrivyMetadata(ScannedModel):
    """The digests and names of the image."""

    image: str = Field("", alias="ImageID")
    tags: tuple[str, ...] | None = Field(None, alias="RepoTags")
    digests: tuple[str, ...] | None = Field(None, alias="RepoDigests")


class TrivyFile(ScannedModel):
    """The whole file."""

    name: str = Field("", alias="ArtifactName")
    created: str | None = Field(None, alias="CreatedAt")
    metadata: TrivyMetadata = Field(TrivyMetadata(), alias="Metadata")
    results: tuple[TrivyResult, ...] | None = Field(None, alias="Results")


def is_trivy(data: dict[str, Any]) -> bool:
    """Check if a JSON object is a report of Trivy."""
    return "SchemaVersion" in data and "ArtifactName" in data


def read_trivy(path: Path, data: dict[str, Any]) -> ScanReport:
    """Read a report. Raises ValidationError."""
    file = TrivyFile.model_validate(data)
    metadata = file.metadata
    results = [result for result in file.results or () if result.kind in _PACKAGES or result.vulnerabilities]
    return ScanReport(
        path=path,
        scanner="Trivy",
        names=tuple(dict.fromkeys([file.name, *(metadata.tags or ())])),
        digests=digests_in([metadata.image, file.name, *(metadata.digests or ())]),
        findings=tuple(finding for result in results for finding in _findings(result, path)),
        covers=frozenset(map(_kind, results)),
        no_scan="" if results else "it lists no packages: scan with `--scanners vuln`",
        day=day_of(file.created),
    )


def _findings(result: TrivyResult, path: Path) -> Iterator[Finding]:
    hidden = [one.finding for one in result.suppressed or () if one.kind == "vulnerability"]
    for one in (*(result.vulnerabilities or ()), *map(TrivyVulnerability.model_validate, hidden)):
        number, aliases = numbers_of(one.id, one.vendor_ids or ())
        kind = _kind(result)
        yield Finding(
            kind=kind, name=package_name(kind, one.package), version=one.installed, id=number, aliases=aliases,
            fixed=one.fixed, severity=severity_of(one.severity), published=day_of(one.published), source=str(path),
        )  # fmt: skip


def _kind(result: TrivyResult) -> Kind:
    if result.type in _DEBIAN:
        return "debian"
    return "python" if result.type in _PYTHON else "other"
