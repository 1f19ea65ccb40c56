"""How a command is typed where this process was started: ``nox -s build -- cpu``, or ``torchbake build cpu``."""

import re

from torchbake.ui.command import by_its_name

_WITH_WORDS = re.compile(r"nox -s (?P<names>[a-z]+(?: [a-z]+)*) -- (?P<words>[^\n`,]*)")
_ALONE = re.compile(r"nox -s (?P<name>[a-z]+)(?: --$)?")


def as_typed(text: str) -> str:
    """A text that names commands as nox has them, in the words of whoever reads it."""
    if not by_its_name():
        return text
    return _ALONE.sub(r"torchbake \g<name>", _WITH_WORDS.sub(_each, text))


def _each(match: re.Match[str]) -> str:
    """nox hands the same words to several sessions."""
    return " && ".join(f"torchbake {name} {match['words']}" for name in match["names"].split())
