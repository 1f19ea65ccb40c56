"""Reader of records of OSV, for the distributions of images. Pure.

The schema: https://ossf.github.io/osv-schema/. The export has a zip of records for each ecosystem:
https://google.github.io/osv.dev/data/#data-dumps
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from packaging.utils import canonicalize_name

from torchbake.advisories.advisory import PYPI, Advisory, AdvisoryFormError, AffectedRange, version_key
from torchbake.advisories.cvss import severity_of_vectors
from torchbake.advisories.finding import Severity, is_cve, severity_of

# Ecosystems as "Debian:12" and "Ubuntu:24.04:LTS"; "Ubuntu:Pro:…" has packages that no image of torchbake gets.
_RELEASE = re.compile(r"(?P<id>Debian|Ubuntu):(?P<version>\d[\d.]*)(?::LTS)?")
# Advisories of a distribution: published with a fix, and about several vulnerabilities.
_OF_FIXES = re.compile(r"(?:DSA|DLA|USN)-")
_RANGES = ("ECOSYSTEM", "SEMVER")
_AT_ONE_VERSION = {"fixed": 0, "introduced": 1}  # one range ends where the next begins; `last_affected` includes it


def is_osv(value: Any) -> bool:
    """Check if parsed JSON has the form of a record: an object with an id and the time of its last change."""
    return isinstance(value, dict) and isinstance(value.get("id"), str) and isinstance(value.get("modified"), str)


def osv_advisories(record: Mapping[str, Any], source: str) -> Iterator[Advisory]:
    """Yield the advisories of a record: one for each vulnerability and package. Raises AdvisoryFormError.

    A record that was withdrawn has none.
    """
    if record.get("withdrawn"):
        return
    try:
        for affected in record.get("affected") or ():
            distribution = distribution_of_ecosystem(affected.get("package", {}).get("ecosystem", ""))
            if distribution:
                yield from _advisories(record, affected, distribution, source)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AdvisoryFormError(f"the record {record.get('id')!r} does not have OSV's form ({error!r})") from None


def day_of_record(record: Mapping[str, Any]) -> date | None:
    """Return the day of a record's last change; None if it is not a time."""
    try:
        return _day(record["modified"])
    except ValueError:
        return None


def distribution_of_ecosystem(ecosystem: str) -> str:
    """Return the distribution of an ecosystem's packages; empty for one that images do not have."""
    if ecosystem == "PyPI":
        return PYPI
    match = _RELEASE.fullmatch(ecosystem)
    return f"{match['id'].lower()}:{match['version']}" if match else ""


def _advisories(
    record: Mapping[str, Any], affected: Mapping[str, Any], distribution: str, source: str
) -> Iterator[Advisory]:
    name, day = affected["package"]["name"], _day(record.get("published"))
    of_fix = bool(_OF_FIXES.match(record["id"]))
    ranges, severity = tuple(_ranges(affected, distribution)), _severity(record, affected)
    # Records of distributions list all versions of their ranges, which would take most of the memory.
    versions = () if ranges and distribution != PYPI else tuple(_list(affected.get("versions")))
    for number, aliases in _numbers(record, several=of_fix):
        yield Advisory(
            distribution=distribution,
            package=canonicalize_name(name) if distribution == PYPI else name,
            id=number,
            aliases=aliases,
            ranges=ranges,
            versions=versions,
            severity=severity,
            published=None if of_fix else day,
            fixed_on=day if of_fix else None,
            source=source,
        )


def _numbers(record: Mapping[str, Any], *, several: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the number of each vulnerability of a record, with its other numbers.

    An advisory of a distribution has a CVE number for each of ``several`` vulnerabilities. All numbers of another
    record are of the same vulnerability.
    """
    own = record["id"]
    names = {own, *(record.get("aliases") or ()), *(record.get("upstream") or ())}
    if several and names == {own}:  # records before the schema's version 1.7 have the CVE numbers here
        names |= {*(record.get("related") or ())}
    numbers = sorted(filter(is_cve, names))
    if several and numbers:
        for number in numbers:
            yield number, (own,)
        return
    # PyPI's own records repeat those of GitHub, so GitHub's number joins both.
    first = min(names, key=lambda name: (not is_cve(name), not name.startswith("GHSA-"), name))
    yield first, tuple(sorted(names - {first}))


def _list(value: list[str] | None) -> list[str]:
    """Return a list that may be missing. Raises TypeError, since the characters of a text would be its parts."""
    if value is not None and not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value or []


def _ranges(affected: Mapping[str, Any], distribution: str) -> Iterator[AffectedRange]:
    for one in affected.get("ranges") or ():
        if one["type"] in _RANGES:
            events = [pair for event in one["events"] for pair in event.items()]
            yield from _of_events(_in_order(events, distribution))


def _in_order(events: Sequence[tuple[str, str]], distribution: str) -> list[tuple[str, str]]:
    """Sort events by version; in the file's order if a version cannot be compared, as of Python before PEP 440."""
    if sum(version != "0" for _, version in events) < 2 and events[:1] and events[0][1] == "0":
        return list(events)  # nearly all records, so no version is compared
    key = version_key(distribution)
    try:
        return sorted(events, key=lambda event: (event[1] != "0", key(event[1]), _AT_ONE_VERSION.get(event[0], 2)))
    except ValueError:
        return list(events)


def _of_events(events: Sequence[tuple[str, str]]) -> Iterator[AffectedRange]:
    """Yield a range for each introduction, up to the next fix or the last affected version."""
    start: str | None = None
    for name, version in events:
        if name == "introduced" and start is None:
            start = "" if version == "0" else version
        elif name in ("fixed", "last_affected") and start is not None:
            yield AffectedRange(introduced=start, **{"fixed" if name == "fixed" else "last": version})
            start = None
    if start is not None:
        yield AffectedRange(introduced=start)


def _severity(record: Mapping[str, Any], affected: Mapping[str, Any]) -> Severity:
    """Return the severity: the word of the database if it has one, else that of the CVSS vectors."""
    places = [(affected, "ecosystem_specific"), (affected, "database_specific"), (record, "database_specific")]
    for place, key in places:
        values = place.get(key) or {}
        for word in (values.get("severity"), values.get("urgency")):
            if isinstance(word, str) and (level := severity_of(word)):
                return level
    entries = [*(affected.get("severity") or ()), *(record.get("severity") or ())]
    scores = [(str(one.get("type", "")), str(one["score"])) for one in entries]
    words = [severity_of(score) for kind, score in scores if kind == "Ubuntu"]
    return max(words) if words else severity_of_vectors(score for kind, score in scores if kind.startswith("CVSS_"))


def _day(moment: str | None) -> date | None:
    """Return the day of a time by RFC 3339, which OSV writes in UTC."""
    return datetime.fromisoformat(moment).date() if moment else None
