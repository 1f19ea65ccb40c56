"""The log lines of `run`: printable text only; a failure to write them never ends a job."""

import contextlib
import os
from collections.abc import Sequence

_MOST_NUMBERS = 8


def say(*lines: str) -> None:
    """Print lines to stderr; ignore a log that is full or closed."""
    text = "".join(f"{printable(line)}\n" for line in lines)
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def printable(text: str) -> str:
    """Return one line of text in which control characters, and so terminal escapes, are escaped."""
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode() for each in text
    )


def join_numbers(what: str, numbers: Sequence[int]) -> str:
    """Return ``node 1``, ``nodes 1, 2``, or the first eight numbers and the count of the others."""
    more = len(numbers) - _MOST_NUMBERS
    listed = ", ".join(map(str, numbers[:_MOST_NUMBERS])) + (f" and {more} more" if more > 0 else "")
    return f"{what}{'' if len(numbers) == 1 else 's'} {listed}"
