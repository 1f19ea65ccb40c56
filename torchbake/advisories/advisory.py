"""One vulnerability of one package of a distribution, and the versions that it affects. Pure.

The model is that of OSV: https://ossf.github.io/osv-schema/#evaluation
"""

from collections.abc import Callable
from contextlib import suppress
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
    """Versions from ``introduced`` on, before ``fixed``, and up to ``last``; an empty text is no bound.

    Raises TypeError for a bound that is no text.
    """

    introduced: str = ""
    fixed: str = ""
    last: str = ""

    def __post_init__(self) -> None:
        _refuse_other_than_text(self.introduced, self.fixed, self.last)

    def contains(self, value: Any, key: Callable[[str], Any]) -> bool:
        """Check if a version is affected, by its ``value`` of ``key``. Raises ValueError if a bound has no key."""
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
    other fields are those of a `Finding`. Raises TypeError for a name or version that is no text.
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

    def __post_init__(self) -> None:
        _refuse_other_than_text(self.package, self.id, *self.versions, *self.aliases)

    def affects(self, version: str) -> bool:
        """Check if a version is affected. A version that cannot be compared is, if there is a range."""
        return version in self.versions or self._lists(version) or any(self._has(version, one) for one in self.ranges)

    def fixed_after(self, version: str) -> str:
        """Return the first fixed version above an affected one, or the first one if it cannot be compared.

        It is empty if there is none.
        """
        key, later, value = version_key(self.distribution), dict[Any, str](), None
        with suppress(ValueError):
            value = key(version)
        for fixed in filter(None, (one.fixed for one in self.ranges)):
            with suppress(ValueError):  # old Python versions, before PEP 440
                if value is None or value < key(fixed):
                    later[key(fixed)] = fixed
        return later[min(later)] if later else ""

    def _lists(self, version: str) -> bool:
        """Check if a listed version is equal, such as 1.0 and 1.0.0. Old ones that cannot be compared are passed over.

        A record of PyPI may list them beside others.
        """
        key = version_key(self.distribution)
        for one in self.versions:
            with suppress(ValueError):
                if key(one) == key(version):
                    return True
        return False

    def _has(self, version: str, affected: AffectedRange) -> bool:
        """Check if a range has a version; it does if the version cannot be compared.

        If a bound cannot be compared, the list of versions decides, or without a list the range has the version.
        """
        key = version_key(self.distribution)
        try:
            value = key(version)
        except ValueError:
            return True
        try:
            return affected.contains(value, key)
        except ValueError:
            return not self.versions


def _refuse_other_than_text(*values: object) -> None:
    """Raise TypeError for a value of a foreign file that is no text, before it is compared."""
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is no text")


def version_key(distribution: str) -> Callable[[str], Any]:
    """Return the order of the versions of a distribution. It raises ValueError for text that is no version."""
    return _python_key if distribution == PYPI else debian_key


def _python_key(version: str) -> Version:
    """Return the order of a Python version without its local part: 2.13.0+cpu has the code of 2.13.0."""
    return Version(Version(version).public)
