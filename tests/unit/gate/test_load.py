"""A gate's file: its mistakes have file, line and key, and all of them are shown at once."""

from datetime import date
from pathlib import Path

import pytest

from torchbake.advisories.finding import Severity
from torchbake.errors import GateError
from torchbake.gate.load import load_gate, read_gate

GATE = """\
reports: [scans]
refuse:
  - severity: high
    fixed_only: true
  - {older_than_days: 14, since: fix}
allow:
  - id: CVE-2026-1001
    package: libssl3
    reason: "the fix: in staging"
    expires: 2027-01-31
"""
ENTRY = "  - {id: CVE-2026-1001, reason: in staging, expires: 2027-01-31"


def test_a_gate_has_rules_and_reasons() -> None:
    gate = read_gate(GATE, Path("gate.yaml"))
    assert [rule.text for rule in gate.refuse] == ["high or above, with a fix", "fixed for more than 14 days"]
    assert (gate.allow[0].expires, gate.allow[0].status) == (date(2027, 1, 31), "accepted")
    assert gate.unknown == Severity.CRITICAL
    assert gate.max_age_days == 7


def mistakes(text: str) -> str:
    with pytest.raises(GateError) as error:
        read_gate(text, Path("gate.yaml"))
    return error.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "gate.yaml:1: is empty"),
        ("- a", "gate.yaml:1: is not a mapping"),
        ("refuse: [", "gate.yaml:2:1: YAML syntax"),
        ("refuse: [{severity: high}]\n", "names no input"),
        ("reports: [a]\n", "refuse: is missing"),
        ("reports: [a]\nrefuse: []\n", "gate.yaml:2: refuse: needs at least one entry"),
        ("reports: [a]\nrefuse:\n  - {}\n", "gate.yaml:3: refuse.0: has no condition"),
        ("reports: [a]\nrefuse:\n  - since: fix\n    severity: low\n", "`since` belongs to older_than_days"),
        (
            "reports: [a]\nrefuse:\n  - severity: hihg\n",
            "gate.yaml:3: refuse.0.severity: 'hihg' is unknown; did you mean",
        ),
        ("reports: [a]\nrefuse:\n  - fixed-only: true\n", "unknown key 'fixed-only'; did you mean 'fixed_only'?"),
        ("reports: [a]\nrefuse:\n  - older_than_days: soon\n", "should be a whole number"),
        ("reports: ['']\nrefuse:\n  - severity: low\n", "reports.0: is empty"),
    ],
)
def test_a_mistake_has_its_line_and_key(text: str, expected: str) -> None:
    assert expected in mistakes(text)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("  - {id: CVE-2026-1001, reason: in staging}", "gate.yaml:5: allow.0.expires: is missing"),
        ("  - {id: CVE-2026-1001, expires: 2027-01-31}", "allow.0.reason: is missing"),
        ("  - {id: CVE-2026-1001, reason: ' ', expires: 2027-01-31}", "allow.0.reason: is empty"),
        ("  - {id: CVE-2026-1001, reason: a, expires: 31.1.2027}", "'31.1.2027' is not a day: write it as 2027-01-31"),
        ("  - {reason: in staging, expires: 2027-01-31}", "allow.0: names neither a vulnerability nor a package"),
        ("  - {id: , package: a, reason: b, expires: 2027-01-31}", "gate.yaml:5: allow.0: `id` is empty"),
        (f"{ENTRY}, package: }}", "`package` is empty"),
        (f"{ENTRY}, status: not_affected}}", "`not_affected` needs a justification"),
        (f"{ENTRY}, justification: code_not_reachable}}", "belongs to `status: not_affected`"),
        (f"{ENTRY}, status: not_affected, justification: because}}", "allow.0.justification: 'because' is unknown"),
        (f"{ENTRY}}}\n{ENTRY.lower()}, package: a}}\n{ENTRY}}}", "gate.yaml:7: allow.2: CVE-2026-1001 is allowed"),
    ],
)
def test_an_entry_needs_a_reason_and_a_day(entry: str, expected: str) -> None:
    assert expected in mistakes(f"reports: [a]\nrefuse:\n  - severity: high\nallow:\n{entry}\n")


def test_all_mistakes_are_shown_at_once() -> None:
    text = mistakes("reports: [a]\nrefuse:\n  - severity: x\n    fixed_only: perhaps\nallow: none\n")
    assert "3 problems" in text
    assert all(f"gate.yaml:{line}: " in text for line in (3, 4, 5))


def test_a_missing_file_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(GateError) as error:
        load_gate(tmp_path / "gate.yaml")
    assert "no such file" in error.value.message
    assert "--gate FILE" in (error.value.hint or "")
