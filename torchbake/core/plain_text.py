"""Text of others, without what neither a page nor a terminal can show. Pure."""

import re

# XML 1.0 has no way to write these; a coloured traceback is full of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def clean(text: str) -> str:
    """The text without colours and control characters."""
    return _NOT_XML.sub("", _COLOURS.sub("", text))
