"""The report of a scanner on one image, in any format, and the values that all formats share."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict

from torchbake.advisories.dated import DatedInput
from torchbake.advisories.finding import Finding, Kind, Severity, is_cve

BOTH: frozenset[Kind] = frozenset({"debian", "python"})
_DIGEST = re.compile(r"sha256(?::|%3[Aa])([0-9a-f]{64})")


class ScannedModel(BaseModel):
    """A part of a scanner's file. Keys that no rule needs are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


@dataclass(frozen=True, kw_only=True)
class VexStatement:
    """A statement that a vulnerability of a package needs no action; without a ``package`` it is about all of them.

    ``state`` and ``justification`` are words of CycloneDX.
    """

    id: str
    package: str
    state: str
    justification: str = ""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ScanReport:
    """A scanner's report on one image.

    ``digests`` are the digests of the image in the file, ``names`` its names. ``covers`` are the kinds of packages that
    the scanner looked at. A file that proves no scan has the reason in ``no_scan``. ``day`` is that of the scan, or of
    the scanner's data if that is older; None if the file has no date. ``file_day`` is that of the file's last change.
    """

    path: Path
    scanner: str
    names: tuple[str, ...] = ()
    digests: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    covers: frozenset[Kind] = frozenset()
    statements: tuple[VexStatement, ...] = ()
    no_scan: str = ""
    day: date | None = None
    file_day: date | None = None

    @property
    def dated(self) -> DatedInput:
        """The day that counts: without a date in the file, the day of its last change."""
        day = self.day or self.file_day or date.min
        return DatedInput(place=f"{self.path}", day=day, of_file=self.day is None)


def digests_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the SHA-256 digests in texts, such as names of images and package URLs."""
    return frozenset(f"sha256:{digits}" for text in texts for digits in _DIGEST.findall(text))


def severity_of_score(score: float | None) -> Severity:
    """Return the severity of a CVSS base score by section 5 of the specification.

    https://www.first.org/cvss/v3.1/specification-document
    """
    if score is None or not 0 < score <= 10:
        return Severity.UNKNOWN
    limits = ((9.0, Severity.CRITICAL), (7.0, Severity.HIGH), (4.0, Severity.MEDIUM))
    return next((level for limit, level in limits if score >= limit), Severity.LOW)


def numbers_of(own: str, others: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the number of a vulnerability, and its other numbers.

    A vulnerability with exactly one CVE number has that number.
    """
    names = dict.fromkeys([own, *others])
    numbers = [name for name in names if is_cve(name)]
    number = numbers[0] if len(numbers) == 1 else own
    return number, tuple(name for name in names if name and name != number)


def package_name(kind: Kind, name: str) -> str:
    """Return the name of a package as in an SBOM: that of a Python distribution is normalised."""
    return canonicalize_name(name) if kind == "python" else name


def day_of(text: str | None) -> date | None:
    """Return the day of a time by RFC 3339, by UTC; None if it is missing, invalid or Go's zero time."""
    try:
        moment = datetime.fromisoformat(text or "")
        day = (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    except (ValueError, OverflowError):
        return None
    return day if day.year > 1 else None
