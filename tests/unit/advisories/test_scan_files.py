"""Reports of scanners: each format is recognised by its content, and gives the same findings."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.unit.advisories import scans
from torchbake.advisories.finding import Finding, Severity
from torchbake.advisories.scan_files import read_reports
from torchbake.advisories.scan_report import ScanReport, VexStatement
from torchbake.errors import AdvisoryError

SSL = Finding(
    kind="debian", name="libssl3", version="3.0.17-1", id="CVE-2026-1001", severity=Severity.HIGH, fixed="3.0.18-1"
)
JINJA = Finding(kind="python", name="jinja2", version="3.1.5", id="CVE-2026-1002", severity=Severity.MEDIUM)
PUBLISHED = date(2026, 10, 1)


def read(report: Mapping[str, Any], folder: Path, name: str = "scan.json") -> ScanReport:
    (result,) = read_reports([scans.write(folder, name, report)])
    return replace(result, findings=tuple(replace(one, source="") for one in result.findings))


def test_trivy_names_image_packages_fixes_and_days(tmp_path: Path) -> None:
    report = read(scans.trivy(), tmp_path)
    assert report.findings == (replace(SSL, published=PUBLISHED, aliases=("DSA-9001-1",)), JINJA)
    assert report.digests == {scans.CONFIG, scans.MANIFEST}  # and not that of a layer
    assert (report.scanner, report.names) == ("Trivy", (scans.NAME,))
    assert report.covers == {"debian", "python", "other"}
    assert report.no_scan == ""


def test_trivy_reads_suppressed_findings_too(tmp_path: Path) -> None:
    results = scans.trivy()["Results"]
    (hidden,) = results[0].pop("Vulnerabilities")
    results[0]["ExperimentalModifiedFindings"] = [
        {"Type": "vulnerability", "Status": "ignored", "Source": ".trivyignore", "Finding": hidden},
        {"Type": "secret", "Finding": {"RuleID": "aws-key"}},
    ]
    assert read(scans.trivy(Results=results), tmp_path).findings[0].id == SSL.id


@pytest.mark.parametrize("results", [None, [], [{"Target": "key.pem", "Class": "secret"}]])
def test_trivy_without_a_list_of_packages_is_no_scan(tmp_path: Path, results: Any) -> None:
    report = read(scans.trivy(Results=results), tmp_path)
    assert "--scanners vuln" in report.no_scan
    assert report.covers == frozenset()


def test_trivy_of_debian_packages_alone_covers_no_python(tmp_path: Path) -> None:
    assert read(scans.trivy(Results=scans.trivy()["Results"][:1]), tmp_path).covers == {"debian"}


def test_grype_prefers_cve_numbers_and_reads_ignored_matches(tmp_path: Path) -> None:
    report = read(scans.grype(), tmp_path)
    other = replace(JINJA, severity=Severity.UNKNOWN, aliases=("GHSA-aaaa-bbbb-cccc",))
    assert report.findings == (replace(SSL, aliases=("DSA-9001-1",), fixed_on=date(2026, 10, 20)), other)
    assert report.digests == {scans.CONFIG, scans.MANIFEST}
    assert report.covers == {"debian", "python"}
    assert report.no_scan == ""


def test_grype_without_matches_is_a_scan(tmp_path: Path) -> None:
    report = read(scans.grype(matches=[], ignoredMatches=None), tmp_path)
    assert (report.findings, report.no_scan) == ((), "")


def test_grype_of_a_folder_names_no_image(tmp_path: Path) -> None:
    assert read(scans.grype(source={"type": "directory", "target": "."}), tmp_path).digests == frozenset()


def test_sarif_of_trivy_has_packages_and_no_secrets(tmp_path: Path) -> None:
    report = read(scans.trivy_sarif(), tmp_path, "scan.sarif")
    assert report.findings == (SSL,)
    assert report.digests == {scans.CONFIG}
    python = read(scans.trivy_sarif(rule="LanguageSpecificPackageVulnerability"), tmp_path)
    assert [one.kind for one in python.findings] == ["python"]


def test_sarif_with_odd_names_belongs_to_no_image(tmp_path: Path) -> None:
    report = read(scans.trivy_sarif(properties={"imageName": 1, "repoTags": {"a": 1}}), tmp_path)
    assert report.digests == frozenset()


def test_sarif_of_trivy_without_results_proves_no_scan(tmp_path: Path) -> None:
    report = read(scans.trivy_sarif(rule="Secret"), tmp_path)
    assert report.findings == ()
    assert "does not say if packages were scanned" in report.no_scan


def test_sarif_of_grype_belongs_to_a_digest_but_not_of_a_layer(tmp_path: Path) -> None:
    report = read(scans.grype_sarif(), tmp_path)
    assert report.findings == (SSL,)
    assert report.digests == {scans.MANIFEST}
    assert read(scans.grype_sarif(image=scans.NAME), tmp_path).digests == frozenset()


@pytest.mark.parametrize(
    ("severity", "score", "expected"),
    [
        ("low", "0.0", Severity.UNKNOWN),
        ("low", "2.1", Severity.LOW),
        ("critical", "0.0", Severity.CRITICAL),
        ("high", 10**400, Severity.HIGH),
    ],
)
def test_sarif_of_grype_has_low_for_unknown(tmp_path: Path, severity: str, score: Any, expected: Severity) -> None:
    (finding,) = read(scans.grype_sarif(severity=severity, score=score), tmp_path).findings
    assert finding.severity == expected


def test_cyclonedx_takes_the_severity_of_its_source(tmp_path: Path) -> None:
    report = read(scans.cyclonedx(), tmp_path)
    assert report.findings == (replace(SSL, published=PUBLISHED), JINJA)
    assert report.digests == {scans.CONFIG, scans.MANIFEST}
    assert report.covers == {"debian", "python"}
    assert report.no_scan == ""


def test_cyclonedx_of_grype_has_the_fix_as_a_range(tmp_path: Path) -> None:
    one = scans.cyclonedx()["vulnerabilities"][0]
    versions = [{"version": "3.0.17-1"}, {"range": "vers:generic/>=3.0.18-1", "status": "unaffected"}]
    one |= {"recommendation": "", "source": {}, "affects": [{"ref": one["affects"][0]["ref"], "versions": versions}]}
    (finding,) = read(scans.cyclonedx(vulnerabilities=[one]), tmp_path).findings
    assert (finding.fixed, finding.severity) == ("3.0.18-1", Severity.CRITICAL)


def test_cyclonedx_without_a_package_is_about_the_image(tmp_path: Path) -> None:
    one = scans.cyclonedx()["vulnerabilities"][0] | {"affects": []}
    (finding,) = read(scans.cyclonedx(vulnerabilities=[one]), tmp_path).findings
    assert (finding.kind, finding.name, finding.id) == ("other", "the image", SSL.id)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vulnerabilities": None}, "SBOM without `vulnerabilities`"),
        ({"vulnerabilities": []}, "is empty, as without a scan"),
        ({"components": []}, "a VEX document"),
    ],
)
def test_cyclonedx_that_proves_no_scan(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    report = read(scans.cyclonedx(**changes), tmp_path)
    assert reason in report.no_scan
    assert report.covers == frozenset()


def test_an_empty_list_of_grype_is_a_scan(tmp_path: Path) -> None:
    metadata = scans.cyclonedx()["metadata"] | {"tools": [{"vendor": "anchore", "name": "grype"}]}
    assert read(scans.cyclonedx(vulnerabilities=[], metadata=metadata), tmp_path).no_scan == ""


def test_a_vex_document_has_statements_and_is_no_scan(tmp_path: Path) -> None:
    report = read(scans.vex(), tmp_path)
    statement = VexStatement(
        id=SSL.id, package="", state="not_affected", justification="code_not_reachable", detail="no server runs"
    )
    assert report.statements == (statement,)
    assert "VEX" in report.no_scan
    link = "urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#pkg:deb/debian/libssl3@3.0.17-1?arch=amd64"
    assert read(scans.vex(ref=link), tmp_path).statements == (replace(statement, package="libssl3"),)


@pytest.mark.parametrize("state", ["exploitable", "in_triage", ""])
def test_an_open_state_of_vex_allows_nothing(tmp_path: Path, state: str) -> None:
    assert read(scans.vex(state), tmp_path).statements == ()


def grype_day(**descriptor: Any) -> dict[str, Any]:
    return scans.grype(descriptor={"name": "grype", **descriptor})


def sarif_day() -> dict[str, Any]:
    report = scans.trivy_sarif()
    report["runs"][0]["invocations"] = [{"executionSuccessful": True, "endTimeUtc": "2026-11-01T10:00:00Z"}]
    return report


DAY, LATER = "2026-11-01T10:00:00.123456789Z", "2026-11-02T10:00:00Z"


@pytest.mark.parametrize(
    "report",
    [
        scans.trivy(CreatedAt=DAY),
        grype_day(timestamp=DAY),
        grype_day(timestamp=LATER, db={"status": {"built": DAY, "valid": True}}),  # of schema 6
        grype_day(timestamp=LATER, db={"built": DAY}),
        scans.cyclonedx(metadata=scans.cyclonedx()["metadata"] | {"timestamp": DAY}),
        sarif_day(),
    ],
)
def test_a_report_has_the_day_of_its_scan(tmp_path: Path, report: dict[str, Any]) -> None:
    dated = read(report, tmp_path).dated
    assert (dated.day, dated.of_file) == (date(2026, 11, 1), False)


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        ("2026-11-01T23:30:00.123456789-05:00", date(2026, 11, 2)),
        ("2026-11-01T01:30:00+02:00", date(2026, 10, 31)),
        ("2026-11-01", date(2026, 11, 1)),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+02:00", None),
        ("yesterday", None),
    ],
)
def test_the_day_of_a_scan_is_that_of_utc(tmp_path: Path, moment: str, day: date | None) -> None:
    assert read(scans.trivy(CreatedAt=moment), tmp_path).day == day


@pytest.mark.parametrize("report", [scans.trivy(), scans.grype(), scans.trivy_sarif(), scans.grype_sarif()])
def test_a_report_without_a_date_has_that_of_its_file(tmp_path: Path, report: dict[str, Any]) -> None:
    path = scans.write(tmp_path, "scan.json", report)
    os.utime(path, (0, 86_400 * 366))
    (one,) = read_reports([path])
    assert (one.dated.day, one.dated.of_file) == (date(1971, 1, 2), True)


def test_a_folder_gives_its_reports_in_order(tmp_path: Path) -> None:
    scans.write(tmp_path / "b", "one.sarif", scans.trivy_sarif())
    scans.write(tmp_path / "a", "two.json", scans.grype())
    (tmp_path / "notes.txt").write_text("no report")
    reports = read_reports([tmp_path])
    assert [(one.path.name, one.scanner) for one in reports] == [("two.json", "Grype"), ("one.sarif", "Trivy")]
    assert all(one.source == str(report.path) for report in reports for one in report.findings)


BROKEN = {
    "not JSON": ("{", "is not JSON"),
    "a list": ("[]", "is not a JSON object"),
    "unknown": ('{"a": 1}', "is not a report"),
    "SARIF of CodeQL": ('{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "CodeQL"}}}]}', "'CodeQL'"),
    "SARIF 1": ('{"version": "1.0.0", "runs": []}', "version: "),
    "wrong type": ('{"SchemaVersion": 2, "ArtifactName": "a", "Results": [{"Vulnerabilities": 1}]}', "Results.0."),
    "no package": (
        '{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "Trivy"}}, "results": '
        '[{"ruleId": "CVE-1", "message": {"text": "Severity: HIGH"}}]}]}',
        "'CVE-1' does not name its package",
    ),
    "VEX of an empty name": (
        '{"bomFormat": "CycloneDX", "vulnerabilities": [{"id": "CVE-1", "affects": [{"ref": ""}], '
        '"analysis": {"state": "not_affected"}}]}',
        "affects.0.ref",
    ),
    "no number": (
        '{"SchemaVersion": 2, "ArtifactName": "a", "Results": [{"Vulnerabilities": [{"PkgName": "a"}]}]}',
        "VulnerabilityID",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_the_reason(tmp_path: Path, case: str) -> None:
    text, reason = BROKEN[case]
    path = tmp_path / "scan.json"
    path.write_text(text)
    with pytest.raises(AdvisoryError) as error:
        read_reports([path])
    assert str(path) in error.value.message
    assert reason in error.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdvisoryError, match=r"gone\.json"):
        read_reports([tmp_path / "gone.json"])
