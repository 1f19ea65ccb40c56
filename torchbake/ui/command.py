"""Commands of torchbake in messages, written as their reader types them."""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A command in a message: ``Command("build", "cpu")``.

    Its text is `torchbake build cpu` for a reader who typed `torchbake`, else `nox -s build -- cpu`.
    """

    names: str  # several, separated by spaces, for commands that get the same words
    words: str = ""

    def __str__(self) -> str:
        if by_its_name():
            return " && ".join(f"torchbake {name} {self.words}".rstrip() for name in self.names.split())
        return f"nox -s {self.names}" + (f" -- {self.words}" if self.words else "")


def by_its_name() -> bool:
    """Return whether `torchbake` was typed. nox starts Python on the toolkit's folder, which may have that name too."""
    return _is_program(sys.argv[0])


@cache
def _is_program(path: str) -> bool:
    return Path(path).name == "torchbake" and not Path(path).is_dir()
