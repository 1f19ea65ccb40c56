"""Known vulnerabilities of the packages of an image."""

from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Literal

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


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """A vulnerability of one package of an image.

    ``name`` is of a package as installed, of which ``version`` is in the image: a binary package of Debian or Ubuntu,
    or a Python distribution. ``id`` is CVE-… if it has such a number, else the source's own; ``aliases`` are its other
    numbers. ``fixed`` is the first version with a fix, or empty if there is none; of a Debian package it is the version
    of its source package. ``published`` is the day on which the source published the vulnerability, and ``fixed_on``
    the day on which the distribution published the fix; None if no source has that day. ``note`` is the source's
    remark, such as the reason why Debian postpones a fix. ``source`` is the file that named it, or several, joined by
    commas.
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
