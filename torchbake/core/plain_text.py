"""Output of other programs: without characters that a page cannot show, and its last lines. Pure."""

import re
from collections.abc import Iterable

# XML 1.0 has no way to write these; a coloured traceback is full of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_LINES = 12  # of an output in a message
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def clean(text: str) -> str:
    """Return the text without colours and control characters."""
    return _NOT_XML.sub("", _COLOURS.sub("", text))


def shortened(text: str, length: int) -> str:
    """Return a text on one line, cut at a length."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def last_line(output: str, most: int | None = None, *, nothing: str = "it printed nothing") -> str:
    """Return the last line of a program's output, cut to ``most`` characters; ``nothing`` if the output is empty."""
    return (output.strip().splitlines() or [nothing])[-1].strip()[:most]


def last_lines(output: str) -> str:
    """Return the last lines of a program's output that have text, for a message. Lines after the first are indented."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return "\n  ".join(lines[-_MOST_LINES:]) or "it printed nothing"


def with_reasons(sentence: str, reasons: Iterable[tuple[str, str]], *, most: int = 10) -> str:
    """Return an error's sentence with a line for each failure: its name, and the first line of its reason."""
    lines = [f"{name}: {reason.strip().partition(chr(10))[0]}" for name, reason in reasons]
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return "\n  ".join([sentence, *lines[:most], *more])
