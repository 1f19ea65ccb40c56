"""How wide the columns of a table are on a terminal, which of them are shown, and which are of figures. Pure."""

import re
from collections.abc import Sequence

from rich.cells import cell_len

GAP = 2  # between two columns
_LAST = 12  # what the last column, which is of prose or many names, gets at least
_FIGURE = re.compile(r"\d+|\d+(\.\d+)? (s|B|kB|MB|GB)")  # a version is none


def filled(columns: Sequence[Sequence[str]]) -> list[int]:
    """Which columns say something; each begins with its heading."""
    return [place for place, cells in enumerate(columns) if any(cells[1:])]


def is_of_figures(cells: Sequence[str]) -> bool:
    """Whether a column is read by its last digit; it begins with its heading."""
    return all(not cell or _FIGURE.fullmatch(cell) for cell in cells[1:])


def widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column, so that all and their gaps fit into ``room``. There is at least one column.

    What is too wide is wrapped between words, so that a name can be copied from a line. Words are broken in the last
    column first, and in the others only where the names alone do not fit.
    """
    room -= GAP * (len(columns) - 1)
    whole = [_widest(cells, "\n") for cells in columns]
    words = [_widest(cells, None) for cells in columns]
    for least in (words, [*words[:-1], min(words[-1], _LAST)], [1] * len(columns)):
        found = _shrunk(whole, least, room)
        if sum(found) <= room:
            break
    return found


def _widest(cells: Sequence[str], separator: str | None) -> int:
    return max((cell_len(part) for cell in cells for part in cell.split(separator)), default=0)


def _shrunk(whole: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widest columns made smaller until all fit, or none can be."""
    found = list(whole)
    while sum(found) > room:
        can = [place for place, width in enumerate(found) if width > least[place]]
        if not can:
            break
        found[max(can, key=lambda place: found[place])] -= 1
    return found
