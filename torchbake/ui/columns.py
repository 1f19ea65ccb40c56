"""The layout of a table on a terminal: widths of columns, empty columns, and columns of numbers. Pure."""

import re
from collections.abc import Sequence

from rich.cells import cell_len

GAP = 2  # between two columns
_LAST = 12  # the least width of the last column, which has prose or many names
_FIGURE = re.compile(r"\d+|\d+(\.\d+)? (s|B|kB|MB|GB)")  # a version is not a figure


def fill(columns: Sequence[Sequence[str]]) -> list[int]:
    """Return the numbers of the columns that are not empty. Each column begins with its heading."""
    return [place for place, cells in enumerate(columns) if any(cells[1:])]


def is_of_figures(cells: Sequence[str]) -> bool:
    """Return whether the cells below the heading are all figures, which are aligned right."""
    return all(not cell or _FIGURE.fullmatch(cell) for cell in cells[1:])


def widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column, so that all and their gaps fit into ``room``. There is at least one column.

    Lines are wrapped between words, so that a name can be copied. If words must be broken, those of the last column are
    broken first.
    """
    room -= GAP * (len(columns) - 1)
    whole = [_widest(cells, "\n") for cells in columns]
    words = [_widest(cells, None) for cells in columns]
    for least in (words, [*words[:-1], min(words[-1], _LAST)], [1] * len(columns)):
        matches = _shrunk(whole, least, room)
        if sum(matches) <= room:
            break
    return matches


def _widest(cells: Sequence[str], separator: str | None) -> int:
    return max((cell_len(part) for cell in cells for part in cell.split(separator)), default=0)


def _shrunk(whole: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Shrink the widest column again and again until all fit, or all have their least width."""
    matches = list(whole)
    while sum(matches) > room:
        can = [place for place, width in enumerate(matches) if width > least[place]]
        if not can:
            break
        matches[max(can, key=lambda place: matches[place])] -= 1
    return matches
