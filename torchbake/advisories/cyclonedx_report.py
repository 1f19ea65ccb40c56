"""CycloneDX files with vulnerabilities: an SBOM that a scanner has judged, or a VEX document. Pure.

https://cyclonedx.org/docs/1.6/json/#vulnerabilities

A VEX document has statements (`analysis`) and is no scan. Trivy writes an empty list of vulnerabilities also if it did
not look for any.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packageurl import PackageURL
from pydantic import Field

from torchbake.advisories.finding import Finding, Kind, Severity, severity_of
from torchbake.advisories.scan_report import (
    ScannedModel,
    ScanReport,
    VexStatement,
    day_of,
    digests_in,
    numbers_of,
    package_name,
    severity_of_score,
)

HARMLESS = ("not_affected", "false_positive", "resolved", "resolved_with_pedigree")  # states without an open action
_KINDS: dict[str, Kind] = {"deb": "debian", "pypi": "python"}
_UPGRADE = re.compile(r"Upgrade \S+ to version (.+)")  # Trivy's recommendation
_RANGE = re.compile(r"vers:[a-z]+/>=(.+)")  # Grype's version with a fix
_IMAGE_PROPERTIES = ("ImageID", "RepoDigest", "RepoTag")


class CdxNamed(ScannedModel):
    """A named part, such as the source of a vulnerability."""

    name: str = ""


class CdxProperty(ScannedModel):
    """A property of a component."""

    name: str = ""
    value: str = ""


class CdxComponent(ScannedModel):
    """The image, or one of its packages."""

    ref: str = Field("", alias="bom-ref")
    name: str = ""
    version: str = ""
    purl: str = ""
    properties: tuple[CdxProperty, ...] = ()


class CdxMetadata(ScannedModel):
    """The image, and the programs that wrote the file: a list, or since 1.5 a mapping with `components`."""

    component: CdxComponent = CdxComponent()
    tools: Any = None
    timestamp: str | None = None


class CdxRating(ScannedModel):
    """A severity by one source."""

    source: CdxNamed = CdxNamed()
    score: float | None = None
    severity: str = ""
    method: str = ""


class CdxVersion(ScannedModel):
    """A version, or a range of versions."""

    version: str = ""
    range: str = ""
    status: str = "affected"


class CdxTarget(ScannedModel):
    """A package with the vulnerability."""

    ref: str = Field(min_length=1)
    versions: tuple[CdxVersion, ...] = ()


class CdxAnalysis(ScannedModel):
    """A statement about the effect on the image."""

    state: str = ""
    justification: str = ""
    detail: str = ""


class CdxVulnerability(ScannedModel):
    """A vulnerability and its packages."""

    id: str = Field(min_length=1)
    source: CdxNamed = CdxNamed()
    references: tuple[CdxNamed, ...] = ()
    ratings: tuple[CdxRating, ...] = ()
    published: str | None = None
    recommendation: str = ""
    affects: tuple[CdxTarget, ...] = ()
    analysis: CdxAnalysis | None = None


class CdxFile(ScannedModel):
    """The whole file."""

    metadata: CdxMetadata = CdxMetadata()
    components: tuple[CdxComponent, ...] = ()
    vulnerabilities: tuple[CdxVulnerability, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class _Names:
    """The packages of a file by their references."""

    image: str
    components: Mapping[str, CdxComponent] = field(default_factory=dict)

    def package(self, ref: str) -> tuple[Kind, str, str]:
        """Return kind, name and version of a package. The name is empty if the reference is the image's own."""
        ref = ref.partition("#")[2] or ref if ref.startswith("urn:cdx:") else ref
        if ref == self.image:
            return "other", "", ""
        component = self.components.get(ref) or self.components.get(unquote(ref)) or CdxComponent(purl=ref)
        try:
            purl = PackageURL.from_string(component.purl)
        except ValueError:
            return "other", component.name or ref, component.version
        return _KINDS.get(purl.type, "other"), purl.name, purl.version or component.version


def is_cyclonedx(data: dict[str, Any]) -> bool:
    """Check if a JSON object is CycloneDX."""
    return data.get("bomFormat") == "CycloneDX"


def read_cyclonedx(path: Path, data: dict[str, Any]) -> ScanReport:
    """Read a file. Raises ValidationError."""
    file = CdxFile.model_validate(data)
    image, tools = file.metadata.component, list(_tools(file.metadata.tools))
    properties = [one.value for one in image.properties if one.name.rpartition(":")[2] in _IMAGE_PROPERTIES]
    names = _Names(image=image.ref, components={one.ref: one for one in file.components})
    stated = [one for one in file.vulnerabilities or () if one.analysis and one.analysis.state in HARMLESS]
    no_scan = _no_scan(file, tools)
    return ScanReport(
        path=path,
        scanner=", ".join(tools) or "CycloneDX",
        names=tuple(dict.fromkeys(filter(None, [image.name, image.purl, *properties]))),
        digests=digests_in([image.name, image.version, image.purl, *properties]),
        findings=tuple(finding for one in file.vulnerabilities or () for finding in _findings(one, names, path)),
        covers=frozenset() if no_scan else frozenset(names.package(one.ref)[0] for one in file.components),
        statements=tuple(statement for one in stated for statement in _statements(one, names)),
        no_scan=no_scan,
        day=day_of(file.metadata.timestamp),
    )


def _tools(value: Any) -> Iterator[str]:
    entries = value.get("components") if isinstance(value, dict) else value
    for one in entries if isinstance(entries, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            yield one["name"]


def _no_scan(file: CdxFile, tools: Iterable[str]) -> str:
    """Return why a file proves no scan; empty if it does."""
    if file.vulnerabilities is None:
        return "it is an SBOM without `vulnerabilities`: let a scanner judge it"
    if not file.components:
        return "it is a VEX document without packages, which is no scan"
    if not file.vulnerabilities and "grype" not in tools:
        return "its list of vulnerabilities is empty, as without a scan: use the scanner's own JSON"
    return ""


def _findings(one: CdxVulnerability, names: _Names, path: Path) -> Iterator[Finding]:
    number, aliases = numbers_of(one.id, ())
    upgrade = _UPGRADE.match(one.recommendation)
    for target in _targets(one, names):
        kind, name, version = names.package(target.ref)
        installed = next((each.version for each in target.versions if each.version and each.status == "affected"), "")
        yield Finding(
            kind=kind, name=package_name(kind, name) or "the image", version=version or installed, id=number,
            aliases=aliases, severity=_severity(one), fixed=_fixed(target) or (upgrade[1] if upgrade else ""),
            published=day_of(one.published), source=str(path),
        )  # fmt: skip


def _targets(one: CdxVulnerability, names: _Names) -> tuple[CdxTarget, ...]:
    """Return the packages of a vulnerability, or the image if it names none."""
    return one.affects or (CdxTarget.model_construct(ref=names.image),)


def _fixed(target: CdxTarget) -> str:
    good = [one for one in target.versions if one.status == "unaffected"]
    ranges = [match[1] for one in good if (match := _RANGE.fullmatch(one.range))]
    return ", ".join(filter(None, [*(one.version for one in good), *ranges]))


def _severity(one: CdxVulnerability) -> Severity:
    """Return the severity by the source of the vulnerability, else the highest of all ratings."""
    ratings = [rating for rating in one.ratings if one.source.name and rating.source.name == one.source.name]
    return max((_rated(rating) for rating in ratings or one.ratings), default=Severity.UNKNOWN)


def _rated(rating: CdxRating) -> Severity:
    score = rating.score if rating.method.startswith("CVSS") else None
    return severity_of(rating.severity) or severity_of_score(score)


def _statements(one: CdxVulnerability, names: _Names) -> Iterator[VexStatement]:
    assert one.analysis
    for target in _targets(one, names):
        yield VexStatement(
            id=one.id, package=names.package(target.ref)[1], state=one.analysis.state,
            justification=one.analysis.justification, detail=one.analysis.detail,
        )  # fmt: skip
