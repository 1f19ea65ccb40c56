"""The decision of a gate: rules, days, allowed vulnerabilities, and reports that are missing or of another image."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from torchbake.advisories.finding import Finding, Kind, Severity
from torchbake.advisories.scan_report import ScanReport, VexStatement
from torchbake.gate.judge import GateResult, GateSubject, Judged, judge_gate, unused_entries
from torchbake.gate.model import GateFile

TODAY = date(2026, 11, 29)
OURS, CONFIG, OTHER = (f"sha256:{letter * 64}" for letter in "abc")
BOTH: frozenset[Kind] = frozenset({"debian", "python"})
SUBJECT = GateSubject(id="cpu", digests=frozenset({OURS, CONFIG}), kinds=BOTH)
SSL = Finding(kind="debian", name="libssl3", version="1", id="CVE-1", severity=Severity.HIGH, aliases=("DSA-9",))
SCAN = ScanReport(
    path=Path("scan.json"), scanner="Trivy", names=("acme/pytorch:cpu",), digests=frozenset({CONFIG}), covers=BOTH,
    day=TODAY,
)  # fmt: skip


def gate(*rules: dict[str, Any], **keys: Any) -> GateFile:
    inputs = {} if "advisories" in keys else {"reports": ["scans"]}
    return GateFile.model_validate({"refuse": rules or [{"severity": "high"}], **inputs, **keys})


def allowed(**keys: Any) -> dict[str, Any]:
    values = {"id": "CVE-1", "reason": "in staging", "expires": "2026-11-29", **keys}
    return {key: value for key, value in values.items() if value is not None}


def judge(file: GateFile, *findings: Finding, reports: Sequence[ScanReport] = (SCAN,), **judged: Any) -> GateResult:
    return judge_gate(file, SUBJECT, Judged(findings=findings, **judged), reports, TODAY)


def refused(file: GateFile, finding: Finding) -> bool:
    result = judge(file, finding)
    assert result.problems == ()
    assert (len(result.refused), len(result.allowed), result.below) in ((1, 0, 0), (0, 0, 1))
    assert result.is_open is not bool(result.refused)
    return bool(result.refused)


@pytest.mark.parametrize("level", [one for one in Severity if one])
def test_a_severity_refuses_itself_and_all_above(level: Severity) -> None:
    assert refused(gate({"severity": "high"}), replace(SSL, severity=level)) is (level >= Severity.HIGH)


def test_an_unknown_severity_is_that_of_the_file() -> None:
    unknown = replace(SSL, severity=Severity.UNKNOWN)
    assert refused(gate({"severity": "critical"}), unknown)
    assert not refused(gate({"severity": "critical"}, unknown_severity="high"), unknown)
    assert refused(gate({"severity": "high"}, unknown_severity="high"), unknown)


def test_fixed_only_needs_a_fix() -> None:
    rule = {"severity": "low", "fixed_only": True}
    assert not refused(gate(rule), SSL)
    assert refused(gate(rule), replace(SSL, fixed="2"))


@pytest.mark.parametrize(("days", "expected"), [(13, False), (14, False), (15, True), (None, True)])
def test_days_count_from_the_advisory(days: int | None, expected: bool) -> None:
    published = None if days is None else TODAY - timedelta(days)
    finding = replace(SSL, published=published, fixed_on=TODAY, fixed="2")
    assert refused(gate({"older_than_days": 14}), finding) is expected


def test_days_count_from_the_fix_if_there_is_one() -> None:
    file = gate({"older_than_days": 14, "since": "fix"})
    old = replace(SSL, published=TODAY - timedelta(100))
    assert not refused(file, old)
    assert not refused(file, replace(old, fixed="2", fixed_on=TODAY - timedelta(14)))
    assert refused(file, replace(old, fixed="2", fixed_on=TODAY - timedelta(15)))
    # Without the day of the fix, days count from the publication.
    assert refused(file, replace(old, fixed="2"))
    assert not refused(file, replace(SSL, fixed="2", published=TODAY - timedelta(14)))


def test_one_rule_is_enough_and_is_named() -> None:
    file = gate({"severity": "critical"}, {"severity": "medium", "fixed_only": True})
    result = judge(file, replace(SSL, fixed="2"))
    assert [one.rule for one in result.refused] == ["medium or above, with a fix"]


def test_the_reason_has_the_day_and_a_severity_that_is_not_known() -> None:
    old = replace(SSL, published=date(2026, 1, 2))
    (refusal,) = judge(gate({"older_than_days": 14}), old).refused
    assert "2026-01-02" in refusal.rule
    (refusal,) = judge(gate({"older_than_days": 0}), old).refused
    assert refusal.rule == "known for more than 0 days (since 2026-01-02)"
    (refusal,) = judge(gate({"severity": "low"}), replace(SSL, severity=Severity.UNKNOWN)).refused
    assert "counts as critical" in refusal.rule


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (allowed(), True),
        (allowed(id="cve-1"), True),
        (allowed(id="DSA-9"), True),
        (allowed(id="CVE-2"), False),
        (allowed(id=None, package="libssl3"), True),
        (allowed(id=None, package="zlib1g"), False),
        (allowed(package="libssl3"), True),
        (allowed(package="openssl"), False),
        (allowed(expires="2026-11-28"), False),
    ],
)
def test_an_entry_allows_a_number_in_a_package_until_a_day(entry: dict[str, Any], expected: bool) -> None:
    result = judge(gate(allow=[entry]), SSL)
    assert result.is_open is expected
    assert [one.finding for one in result.allowed] == ([SSL] if expected else [])


def test_names_of_python_packages_have_several_spellings() -> None:
    finding = replace(SSL, kind="python", name="my-package")
    assert judge(gate(allow=[allowed(package="My_Package")]), finding).is_open


def test_an_expired_entry_is_named_with_its_vulnerability() -> None:
    (refusal,) = judge(gate(allow=[allowed(expires="2026-11-28")]), SSL).refused
    assert refusal.expired
    assert (refusal.expired.id, refusal.expired.expires) == ("CVE-1", date(2026, 11, 28))


def test_entries_that_no_image_has_are_found() -> None:
    entries = [allowed(), allowed(id="CVE-2"), allowed(package="libssl3", expires="2026-01-01")]
    file = gate(allow=entries)
    assert [one.id for one in unused_entries(file, [judge(file, SSL)])] == ["CVE-2"]
    assert unused_entries(gate(allow=[allowed()]), [judge(gate(allow=[allowed()]), SSL)]) == []


def test_of_two_entries_about_one_vulnerability_both_are_used() -> None:
    file = gate({"severity": "critical"}, allow=[allowed(), allowed(id=None, package="libssl3")])
    assert unused_entries(file, [judge(file, SSL)]) == []


def test_findings_of_advisories_and_reports_are_joined() -> None:
    report = replace(SCAN, findings=(replace(SSL, severity=Severity.CRITICAL, fixed="2"),))
    result = judge(gate({"severity": "critical", "fixed_only": True}), SSL, reports=[report])
    assert [(one.finding.severity, one.finding.fixed) for one in result.refused] == [(Severity.CRITICAL, "2")]


def test_a_report_of_another_image_never_opens_the_gate() -> None:
    report = replace(SCAN, digests=frozenset({OTHER}))
    result = judge(gate(), reports=[report])
    assert not result.is_open
    assert any("scan.json" in one and OTHER in one and "acme/pytorch:cpu" in one for one in result.problems)


def test_a_report_with_the_name_alone_never_opens_the_gate() -> None:
    result = judge(gate(), reports=[replace(SCAN, digests=frozenset())])
    assert any("without a digest" in one for one in result.problems)


def test_an_image_without_a_report_is_refused() -> None:
    assert not judge(gate(), reports=[]).is_open
    assert not judge(gate(advisories=["a"], reports=["b"]), reports=[], uncovered={}).is_open
    assert judge(gate(advisories=["a"]), reports=[], uncovered={}).is_open


def test_a_file_that_is_no_scan_never_opens_the_gate() -> None:
    result = judge(gate(), reports=[replace(SCAN, no_scan="it lists nothing", covers=frozenset())])
    assert any("scan.json is no scan: it lists nothing" in one for one in result.problems)


@pytest.mark.parametrize(("days", "keys", "is_open"), [(7, {}, True), (8, {}, False), (8, {"max_age_days": 8}, True)])
def test_an_old_report_counts_as_missing(days: int, keys: dict[str, Any], is_open: bool) -> None:
    report = replace(SCAN, day=TODAY - timedelta(days))
    result = judge(gate(**keys), reports=[report])
    assert result.is_open is is_open
    if not is_open:
        assert "scan.json is of 2026-11-21: 8 days old, more than max_age_days: 7" in result.problems
    newer = replace(SCAN, path=Path("newer.json"))
    assert judge(gate(**keys), reports=[report, newer]).is_open


def test_an_old_report_neither_refuses_nor_allows() -> None:
    statement = VexStatement(id="CVE-1", package="libssl3", state="not_affected")
    old = replace(SCAN, path=Path("old.json"), day=TODAY - timedelta(8))
    assert judge(gate(), reports=[replace(old, findings=(SSL,)), SCAN]).is_open
    result = judge(gate(), SSL, reports=[replace(old, statements=(statement,)), SCAN])
    assert [one.finding for one in result.refused] == [SSL]
    vex = replace(old, statements=(statement,), no_scan="it is a VEX document")
    assert judge(gate(), SSL, reports=[vex, SCAN]).is_open


def test_the_file_dates_a_report_without_a_date() -> None:
    report = replace(SCAN, day=None, file_day=TODAY - timedelta(3))
    assert judge(gate(), reports=[report]).is_open
    (problem, *_) = judge(gate(max_age_days=2), reports=[report]).problems
    assert "scan.json is of 2026-11-26 by the file's last change, as its content has no date: 3 days old" in problem
    assert not judge(gate(), reports=[replace(SCAN, day=None)]).is_open


def test_another_report_does_not_refuse_an_image() -> None:
    other = replace(SCAN, digests=frozenset({OTHER}), findings=(SSL,))
    assert judge(gate(), reports=[other, SCAN]).is_open


def test_packages_that_no_input_covers_refuse_an_image() -> None:
    partial = replace(SCAN, covers=frozenset({"debian"}))
    assert judge(gate(), reports=[partial]).problems == ("no input covers its Python packages",)
    file = gate(advisories=["a"])
    result = judge(file, reports=[], uncovered={"debian": "ubuntu:24.04"})
    assert result.problems == ("no input covers its Debian packages (ubuntu:24.04)",)
    assert judge(gate(advisories=["a"], reports=["b"]), uncovered={"debian": "ubuntu:24.04"}).is_open


def test_an_image_without_packages_needs_no_report() -> None:
    subject = GateSubject(id="init", digests=frozenset({OURS}), kinds=frozenset())
    assert judge_gate(gate(), subject, Judged(), [], TODAY).is_open


def test_a_vex_statement_allows_a_vulnerability_of_its_image() -> None:
    statement = VexStatement(id="CVE-1", package="libssl3", state="not_affected")
    document = replace(SCAN, path=Path("vex.json"), statements=(statement,), no_scan="VEX", covers=frozenset())
    result = judge(gate(), SSL, reports=[SCAN, document])
    assert result.is_open
    assert [one.by for one in result.allowed] == [statement]
    other = replace(document, statements=(replace(statement, package="zlib1g"),))
    assert not judge(gate(), SSL, reports=[SCAN, other]).is_open
    assert not judge(gate(), SSL, reports=[SCAN, replace(document, digests=frozenset({OTHER}))]).is_open
