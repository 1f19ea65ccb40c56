"""Output of other programs: without characters that a page cannot show, and its last line. Pure."""

import re

# XML 1.0 has no way to write these; a coloured traceback is full of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def clean(text: str) -> str:
    """Return the text without colours and control characters."""
    return _NOT_XML.sub("", _COLOURS.sub("", text))


def last_line(output: str, most: int | None = None, *, nothing: str = "it printed nothing") -> str:
    """Return the last line of a program's output, cut to ``most`` characters; ``nothing`` if the output is empty."""
    return (output.strip().splitlines() or [nothing])[-1].strip()[:most]
