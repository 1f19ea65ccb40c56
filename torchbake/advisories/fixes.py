"""Vulnerabilities that a newer Debian package fixes. Pure."""

from collections.abc import Mapping

from torchbake.advisories.finding import Severity
from torchbake.advisories.match import Feeds
from torchbake.debian.lockfile import DebianChange

_MOST = 5  # numbers in a line


def fixed_by(change: DebianChange, distribution: str, feeds: Feeds) -> dict[str, Severity]:
    """Return the vulnerabilities of the old version that the new one does not have, the most severe first.

    A lock has no versions of source packages. They are those of the packages themselves, except for a few sources
    whose packages have other versions, such as gcc-defaults.
    """
    if not change.old or not change.new:
        return {}
    source = change.old.source
    before, after = (_affecting(source, one.version, distribution, feeds) for one in (change.old, change.new))
    fixed = {number: severity for number, severity in before.items() if number not in after}
    return dict(sorted(fixed.items(), key=lambda pair: (-pair[1], pair[0])))


def _affecting(source: str, version: str, distribution: str, feeds: Feeds) -> dict[str, Severity]:
    """Return the vulnerabilities of a version, each with the highest severity of its advisories."""
    severities: dict[str, Severity] = {}
    for one in feeds.of(distribution, source):
        if one.affects(version):
            severities[one.id] = max(one.severity, severities.get(one.id, Severity.UNKNOWN))
    return severities


def with_numbers(line: str, vulnerabilities: Mapping[str, Severity]) -> str:
    """Append vulnerabilities to the line of a change: ``…: CVE-2025-1234 high``."""
    words = [f"{number} {severity.word}" for number, severity in vulnerabilities.items()]
    more = [f"and {len(words) - _MOST} more"] if len(words) > _MOST else []
    return f"{line}: {', '.join([*words[:_MOST], *more])}" if words else line
