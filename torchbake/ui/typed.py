"""How a command is typed where this process was started: ``nox -s build -- cpu``, or ``torchbake build cpu``."""

import re
import sys
from functools import cache
from pathlib import Path

_WITH_WORDS = re.compile(r"nox -s (?P<names>[a-z]+(?: [a-z]+)*) -- (?P<words>[^\n`,]*)")
_ALONE = re.compile(r"nox -s (?P<name>[a-z]+)(?: --$)?")


def by_its_name() -> bool:
    """Whether `torchbake` was typed. nox starts Python on the toolkit's folder, which may have that name too."""
    return _is_program(sys.argv[0])


def as_typed(text: str) -> str:
    """A text that names commands as nox has them, in the words of whoever reads it."""
    if not by_its_name():
        return text
    return _ALONE.sub(r"torchbake \g<name>", _WITH_WORDS.sub(_each, text))


@cache
def _is_program(path: str) -> bool:
    """Asked for every cell of a table, so the disk is asked once."""
    return Path(path).name == "torchbake" and not Path(path).is_dir()


def _each(match: re.Match[str]) -> str:
    """nox hands the same words to several sessions."""
    return " && ".join(f"torchbake {name} {match['words']}" for name in match["names"].split())
