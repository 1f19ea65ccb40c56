"""The VEX document of a released image: its accepted vulnerabilities, as a CycloneDX BOM in an in-toto statement.

https://cyclonedx.org/capabilities/vex/ and https://github.com/in-toto/attestation/blob/main/spec/predicates/README.md

It has no time, so that equal decisions give equal bytes. It names packages by BOM-Links to the attached SBOM:
https://cyclonedx.org/capabilities/bomlink/
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.impact_analysis import ImpactAnalysisJustification, ImpactAnalysisState
from cyclonedx.model.tool import ToolRepository
from cyclonedx.model.vulnerability import (
    BomTarget,
    Vulnerability,
    VulnerabilityAnalysis,
    VulnerabilityRating,
    VulnerabilitySeverity,
)
from cyclonedx.output.json import JsonV1Dot6

from torchbake.advisories.finding import Finding, Severity
from torchbake.advisories.scan_report import VexStatement
from torchbake.gate.judge import Allowance
from torchbake.gate.model import JUSTIFICATIONS, AllowedVulnerability
from torchbake.oci.in_toto import resource, statement
from torchbake.sbom.cyclonedx import LONG_AGO, image_component, ordered, purl_of, serial_number
from torchbake.sbom.packages import ImagePackages

PREDICATE_TYPE = "https://cyclonedx.org/bom"
_SEVERITIES = {Severity.UNKNOWN: "unknown", Severity.NEGLIGIBLE: "info"}  # the other words are the same
_SERIAL = "serialNumber"


def vex_text(name: str, version: str, digest: str, contents: ImagePackages, allowed: Sequence[Allowance]) -> str:
    """Return the statement about an image with this repository ``name``, version and digest of its manifest."""
    vex = vex_document(name, version, digest, contents, allowed)
    return json.dumps(statement([resource(name, digest)], PREDICATE_TYPE, vex), indent=2, ensure_ascii=False) + "\n"


def vex_document(
    name: str, version: str, digest: str, contents: ImagePackages, allowed: Sequence[Allowance]
) -> dict[str, Any]:  # fmt: skip
    """Return the CycloneDX document of `vex_text`."""
    image = image_component(name, version, digest)
    bom = Bom(
        vulnerabilities=[
            _vulnerability(findings, by, [_link(digest, image, finding, contents) for finding in findings])
            for findings, by in _groups(allowed)
        ],
        metadata=BomMetaData(
            timestamp=LONG_AGO,
            component=image,
            tools=ToolRepository(components=[Component(type=ComponentType.APPLICATION, name="torchbake")]),
        ),
    )
    data: dict[str, Any] = ordered(json.loads(JsonV1Dot6(bom).output_as_string()))
    del data["metadata"]["timestamp"], data[_SERIAL]
    data.setdefault("vulnerabilities", [])
    text = json.dumps(data, sort_keys=True)
    return {_SERIAL: uuid.uuid5(uuid.NAMESPACE_URL, text).urn, **data}


def _groups(allowed: Iterable[Allowance]) -> list[tuple[list[Finding], AllowedVulnerability | VexStatement]]:
    """Group the packages of each vulnerability for which there is one reason."""
    groups: dict[tuple[str, str], tuple[list[Finding], AllowedVulnerability | VexStatement]] = {}
    for one in allowed:
        findings, _ = groups.setdefault((one.finding.id, repr(one.by)), ([], one.by))
        findings.append(one.finding)
    return list(groups.values())


def _vulnerability(
    findings: Sequence[Finding], by: AllowedVulnerability | VexStatement, links: Sequence[str]
) -> Vulnerability:  # fmt: skip
    number, level = findings[0].id, max(finding.severity for finding in findings)
    severity = VulnerabilitySeverity(_SEVERITIES.get(level, level.word))
    return Vulnerability(
        bom_ref=f"{number}#{min(links)}",
        id=number,
        ratings=[VulnerabilityRating(severity=severity)],
        affects=[BomTarget(ref=link) for link in sorted(set(links))],
        analysis=_analysis(by),
    )


def _analysis(by: AllowedVulnerability | VexStatement) -> VulnerabilityAnalysis:
    """Return the statement of an entry, or of somebody else's VEX document."""
    if isinstance(by, VexStatement):
        word = by.justification if by.justification in JUSTIFICATIONS else None
        return VulnerabilityAnalysis(
            state=ImpactAnalysisState(by.state),
            justification=ImpactAnalysisJustification(word) if word else None,
            detail=by.detail or None,
        )
    good = by.status == "not_affected"
    return VulnerabilityAnalysis(
        state=ImpactAnalysisState.NOT_AFFECTED if good else ImpactAnalysisState.EXPLOITABLE,
        justification=ImpactAnalysisJustification(by.justification) if by.justification else None,
        detail=f"{by.reason} ({'valid' if good else 'accepted'} until {by.expires})",
    )


def _link(digest: str, image: Component, finding: Finding, contents: ImagePackages) -> str:
    """Return the BOM-Link to a package in the SBOM of the image, or to the image if the SBOM has no such package."""
    own = (one for one in contents.packages if (one.kind, one.name, one.version) == _key(finding))
    package = next(own, None)
    ref = purl_of(package, contents.system).to_string() if package else image.bom_ref.value
    return f"urn:cdx:{serial_number(digest)}/1#{ref}"


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, finding.name, finding.version
