"""The decisions of a gate, as a table and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from torchbake.advisories.finding import Finding
from torchbake.advisories.scan_report import VexStatement
from torchbake.gate.judge import Allowance, GateResult, Refusal, unused_entries
from torchbake.gate.model import AllowedVulnerability, GateFile
from torchbake.ui import console

_HEAD = ("image", "gate", "vulnerability", "severity", "package", "fixed in", "because")
_MOST = 20  # refusing vulnerabilities of an image in the table; JSON has all


def show_gate(file: GateFile, results: Sequence[GateResult]) -> None:
    """Show the table, and name the allowed vulnerabilities that no image has."""
    console.show_table(_HEAD, [row for result in results for row in _rows(result)])
    for entry in unused_entries(file, results):
        place = f" in {entry.package}" if entry.package else ""
        console.say(f"{entry.id}{place} is allowed, and no image has it: remove the entry.", style="yellow")


def gate_entry(result: GateResult) -> dict[str, Any]:
    """Return a decision as JSON."""
    return {
        "open": result.is_open,
        "problems": list(result.problems),
        "refused": [
            _about(one.finding) | {"rule": one.rule, "expired": one.expired.expires.isoformat() if one.expired else ""}
            for one in result.refused
        ],
        "allowed": [_about(one.finding) | _reason(one) for one in result.allowed],
        "below": result.below,
    }


def _rows(result: GateResult) -> Iterable[Sequence[str]]:
    yield from ((result.id, "refused", "", "", "", "", problem) for problem in result.problems)
    for refusal in result.refused[:_MOST]:
        yield (result.id, "refused", *_cells(refusal.finding), _why(refusal))
    if len(result.refused) > _MOST:
        yield result.id, "refused", f"{len(result.refused) - _MOST} more", "", "", "", "--format json has all"
    for one in result.allowed:
        yield (result.id, "allowed", *_cells(one.finding), _because(one))
    if result.is_open:
        yield result.id, "open", "", "", "", "", f"no rule refuses {_count(result.below)}"


def _count(number: int) -> str:
    return f"the other {number}" if number else "anything"


def _cells(finding: Finding) -> tuple[str, str, str, str]:
    package = f"{finding.name} {finding.version}".rstrip()
    return finding.id, finding.severity.word, package, finding.fixed or "no version"


def _why(refusal: Refusal) -> str:
    if refusal.expired is None:
        return refusal.rule
    return f"{refusal.rule}; allowed until {refusal.expired.expires}, which is over: {refusal.expired.reason}"


def _because(one: Allowance) -> str:
    if isinstance(one.by, VexStatement):
        return ": ".join(filter(None, (f"VEX: {one.by.state}", one.by.justification, one.by.detail)))
    return f"{one.by.reason} (until {one.by.expires})"


def _about(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "aliases": list(finding.aliases),
        "severity": finding.severity.word,
        "kind": finding.kind,
        "package": finding.name,
        "version": finding.version,
        "fixed": finding.fixed,
        "published": finding.published.isoformat() if finding.published else "",
        "source": finding.source,
    }


def _reason(one: Allowance) -> dict[str, Any]:
    if isinstance(one.by, AllowedVulnerability):
        words: tuple[str, ...] = (one.by.status, one.by.justification or "", f"{one.by.expires}", one.by.reason)
    else:
        words = (one.by.state, one.by.justification, "", one.by.detail)
    return dict(zip(("status", "justification", "expires", "reason"), words, strict=True))
