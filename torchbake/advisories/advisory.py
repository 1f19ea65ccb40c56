"""One vulnerability of one package of a distribution, and the versions that it affects. Pure.

The model is that of OSV: https://ossf.github.io/osv-schema/#evaluation
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from packaging.version import Version

from torchbake.advisories.debian_version import debian_key
from torchbake.advisories.finding import Severity

PYPI = "pypi"


class AdvisoryFormError(ValueError):
    """Data does not have the form of its kind of advisories. The message gives the place in it, and the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedRange:
    """Versions from ``introduced`` on, before ``fixed``, and up to ``last``; an empty text is no bound."""

    introduced: str = ""
    fixed: str = ""
    last: str = ""

    def contains(self, version: str, key: Callable[[str], Any]) -> bool:
        """Check if a version is affected. Raises ValueError if a version cannot be compared."""
        value = key(version)
        return (
            (not self.introduced or key(self.introduced) <= value)
            and (not self.fixed or value < key(self.fixed))
            and (not self.last or value <= key(self.last))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Advisory:
    """A vulnerability of one package.

    ``distribution`` is `pypi`, or a distribution with its release, such as ``debian:12``. ``package`` is a source
    package, or the normalised name of a Python distribution. All ``versions`` and all ``ranges`` are affected. The
    other fields are those of a `Finding`.
    """

    distribution: str
    package: str
    id: str
    ranges: tuple[AffectedRange, ...] = ()
    versions: tuple[str, ...] = ()
    severity: Severity = Severity.UNKNOWN
    published: date | None = None
    fixed_on: date | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    source: str = ""

    def affects(self, version: str) -> bool:
        """Check if a version is affected. A version that cannot be compared is, if the ranges alone decide."""
        key = version_key(self.distribution)
        try:
            if any(key(one) == key(version) for one in self.versions):
                return True
            return any(one.contains(version, key) for one in self.ranges)
        except ValueError:
            return version in self.versions or bool(self.ranges and not self.versions)

    def fixed_after(self, version: str) -> str:
        """Return the first fixed version above an affected one; empty if there is none."""
        key = version_key(self.distribution)
        try:
            later = {key(one.fixed): one.fixed for one in self.ranges if one.fixed and key(version) < key(one.fixed)}
        except ValueError:
            return ""
        return later[min(later)] if later else ""


def version_key(distribution: str) -> Callable[[str], Any]:
    """Return the order of the versions of a distribution. It raises ValueError for text that is no version."""
    return _python_key if distribution == PYPI else debian_key


def _python_key(version: str) -> Version:
    """Return the order of a Python version without its local part: 2.13.0+cpu has the code of 2.13.0."""
    return Version(Version(version).public)
