"""Suggestions for a mistyped name. Pure."""

import difflib
from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the names most similar to ``word``, best first; none if no name is similar."""
    return difflib.get_close_matches(word, list(choices), n=count, cutoff=0.5)
