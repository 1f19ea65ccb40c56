"""Reports of Trivy and Grype in SARIF 2.1.0. Pure.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html

SARIF has no keys for packages and versions, so each scanner writes them as lines of a text. It has no key for a list of
scanned packages either: a file without a vulnerability may be of a scan for something else.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from torchbake.advisories.finding import Finding, Kind, Severity, severity_of
from torchbake.advisories.grype import KINDS
from torchbake.advisories.scan_report import (
    BOTH,
    ScannedModel,
    ScanReport,
    day_of,
    digests_in,
    numbers_of,
    package_name,
    severity_of_score,
)

_NO_RESULT = "it names no vulnerability, and SARIF does not say if packages were scanned: use the scanner's own JSON"
_KEYS = "Vulnerability|Severity|Package|Installed Version|Version|Fixed Version|Fix Version|Type"
_LINES = re.compile(rf"(?m)^({_KEYS}):? (.*)$")
_IN_IMAGE = re.compile(r" was found in image (\S+) at: ")
_OTHER_RULES = ("Misconfiguration", "Secret", "License")  # of Trivy, which are no vulnerabilities of packages
_DISTRIBUTION = re.compile(r"\.(dist|egg)-info\b")


class SarifText(ScannedModel):
    """A message."""

    text: str = ""


class SarifRule(ScannedModel):
    """A vulnerability, in Grype's files with its package."""

    id: str
    name: str = ""
    help: SarifText = SarifText()
    properties: dict[str, Any] = Field(default_factory=dict)


class SarifDriver(ScannedModel):
    """The scanner and its rules."""

    name: str
    rules: tuple[SarifRule, ...] | None = None


class SarifTool(ScannedModel):
    """The scanner."""

    driver: SarifDriver


class SarifLocation(ScannedModel):
    """A place; Trivy names the path of the package in its message."""

    message: SarifText = SarifText()


class SarifResult(ScannedModel):
    """A vulnerability of a package."""

    rule: str = Field(alias="ruleId")
    message: SarifText
    locations: tuple[SarifLocation, ...] | None = None


class SarifInvocation(ScannedModel):
    """The run of the scanner, which neither Trivy nor Grype writes."""

    start: str | None = Field(None, alias="startTimeUtc")
    end: str | None = Field(None, alias="endTimeUtc")


class SarifRun(ScannedModel):
    """The report of one scanner."""

    tool: SarifTool
    invocations: tuple[SarifInvocation, ...] | None = None
    results: tuple[SarifResult, ...] | None = None
    properties: dict[str, Any] = Field(default_factory=dict)


class SarifFile(ScannedModel):
    """The whole file."""

    version: str = Field(pattern=r"^2\.1\.")
    runs: tuple[SarifRun, ...] = Field(min_length=1, max_length=1)


def is_sarif(data: dict[str, Any]) -> bool:
    """Check if a JSON object is SARIF."""
    return "runs" in data and "sarif" in f"{data.get('$schema', 'sarif')}"


def read_sarif(path: Path, data: dict[str, Any]) -> ScanReport:
    """Read a report. Raises ValidationError, and ValueError for another scanner's."""
    (run,) = SarifFile.model_validate(data).runs
    name = run.tool.driver.name
    if name.lower() not in ("trivy", "grype"):
        raise ValueError(f"it is SARIF of {name!r}; SARIF is read of Trivy and Grype alone")
    by_trivy = name.lower() == "trivy"
    names = _trivy_names(run) if by_trivy else _grype_names(run)
    findings = tuple(_trivy_findings(run, path) if by_trivy else _grype_findings(run, path))
    return ScanReport(
        path=path,
        scanner=name,
        names=names,
        digests=digests_in(names),
        findings=findings,
        covers=BOTH,
        no_scan="" if findings else _NO_RESULT,
        day=min(filter(None, (day_of(one.end or one.start) for one in run.invocations or ())), default=None),
    )


def _trivy_names(run: SarifRun) -> tuple[str, ...]:
    keys = ("imageName", "imageID", "repoTags", "repoDigests")
    values = [run.properties.get(key) or () for key in keys]
    return tuple(str(one) for value in values for one in (value if isinstance(value, list) else [value]))


def _trivy_findings(run: SarifRun, path: Path) -> Iterator[Finding]:
    rules = {rule.id: rule for rule in run.tool.driver.rules or ()}
    for result in run.results or ():
        rule = rules.get(result.rule, SarifRule(id=result.rule))
        if rule.name not in _OTHER_RULES:
            place = next((one.message.text for one in result.locations or ()), "")
            yield _finding(result.rule, _lines(result.message.text), rule, _trivy_kind(rule, place), path)


def _trivy_kind(rule: SarifRule, place: str) -> Kind:
    if rule.name == "OsPackageVulnerability":
        return "debian"
    return "python" if _DISTRIBUTION.search(place) else "other"


def _grype_names(run: SarifRun) -> tuple[str, ...]:
    """Return the names of the image in the messages. Digests in places are those of layers."""
    return tuple(dict.fromkeys(name for one in run.results or () for name in _IN_IMAGE.findall(one.message.text)))


def _grype_findings(run: SarifRun, path: Path) -> Iterator[Finding]:
    rules = {rule.id: rule for rule in run.tool.driver.rules or ()}
    for result in run.results or ():
        rule = rules.get(result.rule, SarifRule(id=result.rule))
        lines = _lines(rule.help.text)
        kind = KINDS.get(lines.get("Type", ""), "other")
        yield _finding(lines.get("Vulnerability", result.rule), lines, rule, kind, path)


def _finding(number: str, lines: Mapping[str, str], rule: SarifRule, kind: Kind, path: Path) -> Finding:
    if not lines.get("Package"):
        raise ValueError(f"the result {rule.id!r} does not name its package")
    id_, aliases = numbers_of(number, ())
    return Finding(
        kind=kind, name=package_name(kind, lines["Package"]), id=id_, aliases=aliases, source=str(path),
        version=lines.get("Installed Version") or lines.get("Version", ""), severity=_severity(lines, rule),
        fixed=lines.get("Fixed Version") or lines.get("Fix Version", ""),
    )  # fmt: skip


def _severity(lines: Mapping[str, str], rule: SarifRule) -> Severity:
    """Return the severity in the text. Grype writes low for an unknown one, with a score of 0."""
    level = severity_of(lines.get("Severity", ""))
    try:
        score = float(rule.properties.get("security-severity", ""))
    except (TypeError, ValueError, OverflowError):
        return level
    if score == 0 and level == Severity.LOW:
        return Severity.UNKNOWN
    return level or severity_of_score(score)


def _lines(text: str) -> dict[str, str]:
    return {key: value.strip() for key, value in _LINES.findall(text)}
