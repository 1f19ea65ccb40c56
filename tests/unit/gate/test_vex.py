"""The VEX document: valid by the official schema, about the packages of the image's SBOM, and equal for equal input."""

import json
from datetime import date
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.unit.advisories.feeds import deb, image, wheel
from torchbake.advisories.cyclonedx_report import HARMLESS
from torchbake.advisories.finding import Finding, Severity
from torchbake.advisories.scan_report import VexStatement
from torchbake.gate.judge import Allowance
from torchbake.gate.model import JUSTIFICATIONS, AllowedVulnerability
from torchbake.gate.vex import vex_text
from torchbake.sbom.cyclonedx import sbom_text

VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)
DIGEST = f"sha256:{'a1' * 32}"
CONTENTS = image(deb("libssl3", "3.0.17-1", source="openssl"), deb("openssl", "3.0.17-1"), wheel("jinja2", "3.1.5"))
SSL = Finding(kind="debian", name="libssl3", version="3.0.17-1", id="CVE-2026-1001", severity=Severity.HIGH)
TOOL = Finding(kind="debian", name="openssl", version="3.0.17-1", id="CVE-2026-1001")
JINJA = Finding(kind="python", name="jinja2", version="3.1.5", id="CVE-2026-1002", severity=Severity.NEGLIGIBLE)
GO = Finding(kind="other", name="stdlib", version="1.24", id="CVE-2026-1003")


def entry(**keys: Any) -> AllowedVulnerability:
    return AllowedVulnerability(**{"id": "CVE-2026-1001", "reason": "in staging", "expires": date(2027, 1, 31)} | keys)


def document(*allowed: Allowance) -> dict[str, Any]:
    statement = json.loads(vex_text("acme/pytorch", "2.13.0-cpu", DIGEST, CONTENTS, allowed))
    assert statement["subject"] == [{"name": "acme/pytorch", "digest": {"sha256": DIGEST[7:]}}]
    assert statement["predicateType"] == "https://cyclonedx.org/bom"
    assert VALIDATOR.validate_str(json.dumps(statement["predicate"])) is None
    matches: dict[str, Any] = statement["predicate"]
    return matches


def test_an_accepted_risk_is_not_called_harmless() -> None:
    (one,) = document(Allowance(finding=SSL, by=entry()))["vulnerabilities"]
    assert one["analysis"] == {"state": "exploitable", "detail": "in staging (accepted until 2027-01-31)"}
    assert (one["id"], one["ratings"]) == ("CVE-2026-1001", [{"severity": "high"}])


@pytest.mark.parametrize("justification", JUSTIFICATIONS)
def test_not_affected_has_its_justification(justification: str) -> None:
    by = entry(status="not_affected", justification=justification)
    (one,) = document(Allowance(finding=SSL, by=by))["vulnerabilities"]
    assert (one["analysis"]["state"], one["analysis"]["justification"]) == ("not_affected", justification)


@pytest.mark.parametrize("state", HARMLESS)
def test_a_statement_of_others_is_passed_on(state: str) -> None:
    by = VexStatement(id=JINJA.id, package="", state=state, justification="no word of CycloneDX", detail="so they say")
    (one,) = document(Allowance(finding=JINJA, by=by))["vulnerabilities"]
    assert one["analysis"] == {"state": state, "detail": "so they say"}


def test_packages_are_links_to_the_sbom_of_the_image() -> None:
    text = sbom_text(CONTENTS, name="acme/pytorch", version="2.13.0-cpu", digest=DIGEST, created=None)
    sbom = json.loads(text)
    refs = {f"{sbom['serialNumber'].replace('uuid', 'cdx')}/1#{one['bom-ref']}" for one in sbom["components"]}
    vex = document(
        *(Allowance(finding=one, by=entry()) for one in (SSL, TOOL)), Allowance(finding=JINJA, by=entry(id=JINJA.id))
    )
    affected = {one["id"]: {target["ref"] for target in one["affects"]} for one in vex["vulnerabilities"]}
    assert affected.keys() == {SSL.id, JINJA.id}
    assert (len(affected[SSL.id]), len(affected[JINJA.id])) == (2, 1)
    assert affected[SSL.id] | affected[JINJA.id] == refs
    assert vex["metadata"]["component"] == sbom["metadata"]["component"]


def test_a_package_that_the_sbom_lacks_is_that_of_the_image() -> None:
    (one,) = document(Allowance(finding=GO, by=entry(id=GO.id)))["vulnerabilities"]
    assert [target["ref"].partition("#")[2] for target in one["affects"]] == [f"pkg:oci/pytorch@{DIGEST}"]


def test_equal_decisions_give_equal_bytes_and_others_do_not() -> None:
    allowed = [Allowance(finding=SSL, by=entry()), Allowance(finding=JINJA, by=entry(id=JINJA.id))]
    assert document(*allowed) == document(*reversed(allowed))
    serials = {document(one)["serialNumber"] for one in allowed}
    assert len(serials) == 2
    assert "timestamp" not in document(*allowed)["metadata"]


def test_a_document_may_have_no_vulnerability() -> None:
    assert document()["vulnerabilities"] == []
