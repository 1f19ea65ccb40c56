"""The decisions of a gate, as a table and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from torchbake.advisories.finding import Finding
from torchbake.advisories.judged import finding_json
from torchbake.advisories.scan_report import VexStatement
from torchbake.gate.judge import Allowance, GateResult, Refusal, unused_entries
from torchbake.gate.model import AllowedVulnerability, GateFile
from torchbake.ui import console

_HEAD = ("image", "gate", "vulnerability", "severity", "package", "fixed in", "because")
_MOST = 20  # vulnerabilities of an image in the table that are refused, and that are allowed; JSON has all
_Decision = TypeVar("_Decision", Refusal, Allowance)


def show_gate(file: GateFile, results: Sequence[GateResult]) -> None:
    """Show the table, and name the allowed vulnerabilities that no image has, if all of these images are known."""
    console.show_table(_HEAD, [row for result in results for row in _rows(result)])
    if any(result.problems for result in results):
        return
    images = "this image" if len(results) == 1 else f"these {len(results)} images"
    for entry in unused_entries(file, results) if results else ():
        console.say(f"{entry.text} is allowed, and not in {images}: if no other has it, remove it.", style="yellow")


def gate_entry(result: GateResult) -> dict[str, Any]:
    """Return a decision as JSON."""
    return {
        "open": result.is_open,
        "problems": list(result.problems),
        "refused": [
            finding_json(one.finding)
            | {"rule": one.rule, "expired": one.expired.expires.isoformat() if one.expired else None}
            for one in result.refused
        ],
        "allowed": [finding_json(one.finding) | _reason(one) for one in result.allowed],
        "below": result.below,
    }


def _rows(result: GateResult) -> Iterable[Sequence[str]]:
    yield from ((result.id, "refused", "", "", "", "", problem) for problem in result.problems)
    refused = [(*_cells(one.finding), _why(one)) for one in _severest(result.refused)]
    allowed = [(*_cells(one.finding), _because(one)) for one in _severest(result.allowed)]
    for word, rows in (("refused", refused), ("allowed", allowed)):
        yield from ((result.id, word, *row) for row in rows[:_MOST])
        if len(rows) > _MOST:
            yield result.id, word, f"{len(rows) - _MOST} more", "", "", "", "--format json has all"
    if result.is_open:
        yield result.id, "open", "", "", "", "", f"no rule refuses {_count(result.below)}"


def _severest(decisions: Sequence[_Decision]) -> list[_Decision]:
    return sorted(decisions, key=lambda one: -one.finding.severity)


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


def _reason(one: Allowance) -> dict[str, Any]:
    if isinstance(one.by, AllowedVulnerability):
        words: tuple[str | None, ...] = (one.by.status, one.by.justification, f"{one.by.expires}", one.by.reason)
    else:
        words = (one.by.state, one.by.justification or None, None, one.by.detail)
    return dict(zip(("status", "justification", "expires", "reason"), words, strict=True))
