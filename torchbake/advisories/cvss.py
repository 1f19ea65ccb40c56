"""The severity of a vulnerability by its CVSS vectors. Pure."""

from collections.abc import Iterable
from functools import cache

from torchbake.advisories.finding import Severity, severity_of


def severity_of_vectors(vectors: Iterable[str]) -> Severity:
    """Return the highest severity of the base scores by the newest version of CVSS among the vectors.

    It is ``UNKNOWN`` if there is no vector, or none is valid.
    """
    levels = [(_version(vector), severity_of(_severity_word(vector))) for vector in vectors]
    return max((one for one in levels if one[1]), default=("", Severity.UNKNOWN))[1]


def _version(vector: str) -> str:
    """Return the beginning of a vector, in the order of the versions; version 2 has none."""
    return vector.partition("/")[0] if vector.startswith("CVSS:") else ""


@cache
def _severity_word(vector: str) -> str:
    """Return the severity of a vector's base score, which is `none` for a score of 0; empty for an invalid vector."""
    from cvss import CVSS2, CVSS3, CVSS4  # noqa: PLC0415 - only files with vectors need it
    from cvss.exceptions import CVSSError  # noqa: PLC0415

    try:
        if vector.startswith("CVSS:4"):
            return str(CVSS4(vector).severity).lower()
        kind = CVSS3 if vector.startswith("CVSS:3") else CVSS2
        return str(kind(vector).severities()[0]).lower()
    except (CVSSError, ValueError):
        return ""
