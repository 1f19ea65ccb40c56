"""The names that somebody may have meant. Pure."""

import difflib
from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str], *, count: int = 3) -> list[str]:
    """The names that look most like ``word``, best first; empty when none does."""
    return difflib.get_close_matches(word, list(choices), n=count, cutoff=0.5)
