"""The severity of a vulnerability by its CVSS vectors. Pure."""

from collections.abc import Iterable
from functools import cache

from torchbake.advisories.finding import Severity

_BELOW_LOW = "none"  # a score of 0


def severity_of_vectors(vectors: Iterable[str]) -> Severity:
    """Return the severity of the base score, by the newest version of CVSS among the vectors.

    It is ``UNKNOWN`` if there is no vector, or none is valid.
    """
    for vector in sorted(vectors, reverse=True):  # CVSS:4.0/… before CVSS:3.1/…; version 2 has no prefix
        word = _severity_word(vector)
        if word:
            return Severity.NEGLIGIBLE if word == _BELOW_LOW else Severity[word.upper()]
    return Severity.UNKNOWN


@cache
def _severity_word(vector: str) -> str:
    """Return the severity of a vector's base score; empty for an invalid vector."""
    from cvss import CVSS2, CVSS3, CVSS4  # noqa: PLC0415 - only files with vectors need it
    from cvss.exceptions import CVSSError  # noqa: PLC0415

    try:
        if vector.startswith("CVSS:4"):
            return str(CVSS4(vector).severity).lower()
        kind = CVSS3 if vector.startswith("CVSS:3") else CVSS2
        return str(kind(vector).severities()[0]).lower()
    except (CVSSError, ValueError):
        return ""
