"""Reader of the data of Debian's security tracker. Pure.

The file: https://security-tracker.debian.org/tracker/data/json, source packages with their CVEs, and for each release
a status. Its meaning: https://security-team.debian.org/security_tracker.html
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torchbake.advisories.advisory import Advisory, AdvisoryFormError, AffectedRange
from torchbake.advisories.codenames import DEBIAN
from torchbake.advisories.finding import severity_of

_NOT_AFFECTED = "0"  # as a fixed version: no version of this release has the vulnerability


def is_tracker(value: Any) -> bool:
    """Check if parsed JSON has the form of the tracker's data."""
    if not isinstance(value, dict) or not value:
        return False
    entries = next(iter(value.values()))
    if not isinstance(entries, dict) or not entries:
        return False
    entry = next(iter(entries.values()))
    return isinstance(entry, dict) and isinstance(entry.get("releases"), dict)


def tracker_advisories(value: Mapping[str, Any], source: str) -> Iterator[Advisory]:
    """Yield the advisories of the tracker's data for the releases that have a number. Raises AdvisoryFormError."""
    for package, entries in value.items():
        try:
            for number, entry in entries.items():
                for codename, release in entry["releases"].items():
                    advisory = _advisory(package, number, codename, release, source)
                    if advisory:
                        yield advisory
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AdvisoryFormError(f"the entry of {package!r} does not have the tracker's form ({error!r})") from None


def tracker_releases(value: Mapping[str, Any]) -> set[str]:
    """Return the distributions that the data covers."""
    codenames = {name for entries in value.values() for entry in entries.values() for name in entry["releases"]}
    return {f"debian:{DEBIAN[name]}" for name in codenames if name in DEBIAN}


def _advisory(
    package: str, number: str, codename: str, release: Mapping[str, Any], source: str
) -> Advisory | None:  # fmt: skip
    """Return the advisory of one release; None if the release is not affected, or is none of `DEBIAN`."""
    status, fixed, urgency = release["status"], release.get("fixed_version", ""), release.get("urgency", "")
    if status not in ("resolved", "open", "undetermined"):
        raise ValueError(f"the status {status!r}")
    if codename not in DEBIAN or (status == "resolved" and fixed == _NOT_AFFECTED):
        return None
    return Advisory(
        distribution=f"debian:{DEBIAN[codename]}",
        package=package,
        id=number,
        ranges=(AffectedRange(fixed=fixed if status == "resolved" else ""),),
        severity=severity_of(urgency.rstrip("*")),
        note=_note(status, urgency, release),
        source=source,
    )


def _note(status: str, urgency: str, release: Mapping[str, Any]) -> str:
    """Return Debian's remark on a vulnerability without a fix."""
    if status == "undetermined":
        return "Debian has not determined if the release is affected"
    if status == "open" and urgency == "end-of-life":
        return "Debian has ended the support of the package"
    if status == "open" and release.get("next_point_update"):
        return "the next point release of Debian has a fix"
    if status == "open" and "nodsa" in release:
        return ": ".join(filter(None, [release.get("nodsa_reason") or "no advisory", release["nodsa"]]))
    return ""
