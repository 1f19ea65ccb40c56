"""Output of other programs: without characters that a page cannot show, and its last lines. Pure."""

import re

# XML 1.0 has no way to write these; a coloured traceback is full of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_LINES = 12  # of an output in a message
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def clean(text: str) -> str:
    """Return the text without colours and control characters."""
    return _NOT_XML.sub("", _COLOURS.sub("", text))


def last_line(output: str, most: int | None = None, *, nothing: str = "it printed nothing") -> str:
    """Return the last line of a program's output, cut to ``most`` characters; ``nothing`` if the output is empty."""
    return (output.strip().splitlines() or [nothing])[-1].strip()[:most]


def last_lines(output: str) -> str:
    """Return the last lines of a program's output that have text, for a message. Lines after the first are indented."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return "\n  ".join(lines[-_MOST_LINES:]) or "it printed nothing"
