"""Text of others: what of it a page and a terminal can show, and its last line. Pure."""

import re

# XML 1.0 has no way to write these; a coloured traceback is full of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def clean(text: str) -> str:
    """The text without colours and control characters."""
    return _NOT_XML.sub("", _COLOURS.sub("", text))


def last_line(said: str, most: int | None = None) -> str:
    """The last line of what a program said, which tells why it failed; ``most`` characters of it."""
    return (said.strip().splitlines() or ["it said nothing"])[-1][:most]
