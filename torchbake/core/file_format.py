"""The format of a file that torchbake reads: a number, and 1 if the file names none. Pure.

The promise for each kind of file is in docs/reference/schemas.md; a test compares its table with `FORMATS`.
"""

import re
from types import MappingProxyType

FORMATS = MappingProxyType(
    {
        "matrix.yaml": 1,
        "job.yaml": 1,
        "benchmark plan": 1,
        "gate": 1,
        "requirements.lock": 1,
        "Debian lock": 1,
        "base lock": 1,
        "verdict": 1,
        "release record": 1,
        "benchmark results": 1,
        "proofs.json": 1,
    }
)
UPGRADE = "Use the torchbake that wrote it, or a newer one: pip install --upgrade torchbake"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def why_too_new(kind: str, value: object) -> str:
    """Return why a file of this kind cannot be read, by the ``value`` of its format; "" if its format is known.

    A value that is no number is no newer format: the reader of the file reports it.
    """
    text = "" if isinstance(value, bool) else str(value)
    if not _NUMBER.fullmatch(text) or int(text) <= FORMATS[kind]:
        return ""
    return f"this {kind} has format {text}, and this torchbake reads formats up to {FORMATS[kind]}"
