"""Known vulnerabilities of the packages of an image."""

import re
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Literal

from packaging.utils import canonicalize_name

Kind = Literal["debian", "python", "other"]  # of a package: other kinds are in the reports of scanners alone


class Severity(IntEnum):
    """The severity of a vulnerability, ordered; ``UNKNOWN`` is the lowest."""

    UNKNOWN = 0
    NEGLIGIBLE = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4
    CRITICAL = 5

    @property
    def word(self) -> str:
        """The severity in lower case, as results show it and as options take it."""
        return self.name.lower()


_WORDS = {
    **{level.word: level for level in Severity},
    "none": Severity.NEGLIGIBLE,
    "info": Severity.NEGLIGIBLE,
    "unimportant": Severity.NEGLIGIBLE,
    "moderate": Severity.MEDIUM,
}
_CVE = re.compile(r"CVE-\d{4}-\d{4,}")


def severity_of(word: str) -> Severity:
    """Return the severity of a source's word; an unknown word is UNKNOWN."""
    return _WORDS.get(word.strip().lower(), Severity.UNKNOWN)


def is_cve(number: str) -> bool:
    """Check if the number of a vulnerability is one of the CVE list."""
    return _CVE.fullmatch(number) is not None


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """A vulnerability of one package of an image.

    - ``name``, ``version``: of the package as installed: a binary package of Debian or Ubuntu, or a Python distribution
    - ``id``: the CVE number if the vulnerability has one, else the source's own; ``aliases`` are other numbers
    - ``fixed``: the first version with a fix, or empty; of a Debian package the version of its source package
    - ``published``: the day on which the source published the vulnerability, or None
    - ``fixed_on``: the day on which the distribution published the fix, or None
    - ``note``: a remark of the source, such as the reason why Debian postpones a fix
    - ``source``: the file that named the vulnerability, or several files, joined by commas
    """

    kind: Kind
    name: str
    version: str
    id: str
    severity: Severity = Severity.UNKNOWN
    fixed: str = ""
    published: date | None = None
    fixed_on: date | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    source: str = ""


def plain_name(package: str) -> str:
    """Return the form in which people's names of packages are compared: Python's names have several spellings."""
    return canonicalize_name(package)
