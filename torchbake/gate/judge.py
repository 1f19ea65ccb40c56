"""Decide by a gate which vulnerabilities refuse an image. Pure.

Nothing unknown opens the gate. An unknown severity is the file's `unknown_severity`, and an unknown day is long ago. An
image without a report, or with packages that no input covers, is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from torchbake.advisories.finding import Finding, Kind, Severity, plain_name
from torchbake.advisories.match import merge_findings
from torchbake.advisories.scan_report import ScanReport, VexStatement
from torchbake.gate.model import AllowedVulnerability, GateFile, GateRule

_MOST_NAMED = 3  # reports that a message names


@dataclass(frozen=True, kw_only=True)
class GateSubject:
    """An image before the gate. ``digests`` are those of its manifests and of its config, ``kinds`` of its packages."""

    id: str
    digests: frozenset[str]
    kinds: frozenset[Kind]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The findings of advisories on an image, and the kinds of packages that they do not cover, with the reason."""

    findings: tuple[Finding, ...] = ()
    uncovered: dict[str, str] | None = None  # None: the gate names no advisories


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A vulnerability that refuses an image, with the conditions of its ``rule`` in words.

    The entry ``expired`` allowed it until its last day.
    """

    finding: Finding
    rule: str
    expired: AllowedVulnerability | None = None


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """A vulnerability that refuses nothing, by an entry of the file or by a VEX statement."""

    finding: Finding
    by: AllowedVulnerability | VexStatement


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The decision on an image. ``below`` is the number of vulnerabilities that no rule refuses.

    ``problems`` are reasons to refuse it that are no vulnerability, such as a missing report. ``used`` are all entries
    of the file about a vulnerability of the image.
    """

    id: str
    refused: tuple[Refusal, ...] = ()
    allowed: tuple[Allowance, ...] = ()
    below: int = 0
    used: tuple[AllowedVulnerability, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        return not self.refused and not self.problems


def judge_gate(
    gate: GateFile, subject: GateSubject, judged: Judged, reports: Sequence[ScanReport], today: date
) -> GateResult:  # fmt: skip
    """Decide on one image by the findings of advisories and the reports of all images.

    An image without packages needs no report.
    """
    own = [report for report in reports if report.digests & subject.digests]
    flaws = {report.path: _flaw(report, gate, today) for report in own}
    scans = [report for report in own if not flaws[report.path]]
    inputs = [*scans, *(report for report in own if report.no_scan)]  # VEX documents have no age
    findings = merge_findings([*judged.findings, *(finding for report in inputs for finding in report.findings)])
    statements = [statement for report in inputs for statement in report.statements]
    refused, allowed, used, below = list[Refusal](), list[Allowance](), list[AllowedVulnerability](), 0
    for finding in findings:
        entries = [entry for entry in gate.allow if _is_about(entry.id or "", entry.package or "", finding)]
        used += [entry for entry in entries if entry not in used]
        good = [entry for entry in entries if today <= entry.expires]
        stated = [one for one in statements if _is_about(one.id, one.package, finding)]
        rule = next((rule for rule in gate.refuse if _refuses(rule, finding, gate.unknown, today)), None)
        if good or stated:
            allowed.append(Allowance(finding=finding, by=good[0] if good else stated[0]))
        elif rule:
            reason = _reason(rule, finding, gate)
            refused.append(Refusal(finding=finding, rule=reason, expired=entries[0] if entries else None))
        else:
            below += 1
    problems = [
        *([_no_report(flaws, reports)] if gate.reports and subject.kinds and not scans else []),
        *_not_covered(subject, judged, scans),
    ]
    return GateResult(
        id=subject.id, refused=tuple(refused), allowed=tuple(allowed), below=below, used=tuple(used),
        problems=tuple(problems),
    )  # fmt: skip


def unused_entries(gate: GateFile, results: Iterable[GateResult]) -> list[AllowedVulnerability]:
    """Return the allowed vulnerabilities that no image has, so that somebody can remove them."""
    used = [entry for result in results for entry in result.used]
    return [entry for entry in gate.allow if entry not in used]


def _refuses(rule: GateRule, finding: Finding, unknown: Severity, today: date) -> bool:
    level = finding.severity or unknown
    if rule.severity and level < Severity[rule.severity.upper()]:
        return False
    if (rule.fixed_only or rule.since == "fix") and not finding.fixed:
        return False
    day = _day_of(rule, finding)
    return rule.older_than_days is None or day is None or (today - day).days > rule.older_than_days


def _day_of(rule: GateRule, finding: Finding) -> date | None:
    """Return the day from which a rule counts; None if it is not known."""
    return (finding.fixed_on or finding.published) if rule.since == "fix" else finding.published


def _reason(rule: GateRule, finding: Finding, gate: GateFile) -> str:
    """Return the conditions of a rule, with the values that a vulnerability has for them."""
    since = f" (since {_day_of(rule, finding) or 'an unknown day'})" if rule.older_than_days is not None else ""
    level = (
        "" if finding.severity or rule.severity is None else f"; an unknown severity counts as {gate.unknown_severity}"
    )
    return f"{rule.text}{since}{level}"


def _is_about(number: str, package: str, finding: Finding) -> bool:
    numbers = {name.upper() for name in (finding.id, *finding.aliases)}
    is_number = not number or number.upper() in numbers
    return is_number and (not package or plain_name(package) == plain_name(finding.name))


def _not_covered(subject: GateSubject, judged: Judged, scans: Iterable[ScanReport]) -> list[str]:
    """Name the kinds of packages of an image that neither advisories nor a report cover."""
    covered: set[str] = {kind for report in scans for kind in report.covers}
    missing = dict[str, str].fromkeys(subject.kinds, "") if judged.uncovered is None else judged.uncovered
    return [
        f"no input covers its {kind.capitalize()} packages" + (f" ({reason})" if reason else "")
        for kind, reason in sorted(missing.items())
        if kind not in covered
    ]


def _flaw(report: ScanReport, gate: GateFile, today: date) -> str:
    """Say why a report on an image does not count: it is no scan, or too old; "" if it counts."""
    if report.no_scan:
        return f"{report.path} is no scan: {report.no_scan}"
    return report.dated.too_old(gate.max_age_days, today)


def _no_report(flaws: Mapping[Path, str], reports: Sequence[ScanReport]) -> str:
    """Say why there is no report on an image, by the flaws of the reports that name it."""
    if flaws:
        return "; ".join(flaws.values())
    others = [
        f"{report.path} is of {next(iter(report.names), 'an image without a name')} "
        f"({', '.join(sorted(report.digests)) or 'without a digest, which any build may have'})"
        for report in reports
    ]
    more = f", and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    return "no report is of this image" + (f": {'; '.join(others[:_MOST_NAMED])}{more}" if others else "")
