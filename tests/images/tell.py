"""How a check says what is wrong: in one short line, never a page."""

from collections.abc import Iterable

MOST = 4


def some(offenders: Iterable[object], *, most: int = MOST) -> str:
    """``a, b, c, d and 17 more``; empty for none."""
    rows = [str(one) for one in offenders]
    return ", ".join(rows[:most]) + (f" and {len(rows) - most} more" if len(rows) > most else "")
