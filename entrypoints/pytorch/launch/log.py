"""What `run` prints: never more than text, and never a reason to end."""

import contextlib
import os
from collections.abc import Sequence

_NAMED = 8


def say(*lines: str) -> None:
    """Print lines to stderr. A log that is full or closed must not end a job, so a failure is nobody's."""
    text = "".join(f"{printable(line)}\n" for line in lines)
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def printable(text: str) -> str:
    """One line of text, whoever wrote it: control characters, and so terminal escapes, are shown as text."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode() for each in text
    )


def named(what: str, numbers: Sequence[int]) -> str:
    """``node 1``, ``nodes 1, 2``, or the first of many and how many more."""
    more = len(numbers) - _NAMED
    listed = ", ".join(map(str, numbers[:_NAMED])) + (f" and {more} more" if more > 0 else "")
    return f"{what}{'' if len(numbers) == 1 else 's'} {listed}"
