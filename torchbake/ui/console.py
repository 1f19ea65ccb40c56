"""The console: messages on stderr, results on stdout; colour only on a terminal."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from torchbake.errors import TorchbakeError
from torchbake.ui.columns import fill, is_of_figures, widths

# Characters that control a terminal: C0 without tab and newline, C1, and changes of direction. Registries and tools
# may send them.
_STEERING = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_ESCAPED = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _STEERING - {0x09, 0x0A}}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING if code > 0x20}


class _Console(Console):
    """A console that shows control characters in texts as escapes; rich's own colours are no texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=segment.text.translate(_ESCAPED))


# highlight=False: rich would colour the numbers in messages.
err = _Console(stderr=True, highlight=False, soft_wrap=True)


def force_terminal() -> None:
    """Draw live rows and colours on stderr also if it is no terminal, for a CI log that shows them."""
    global err  # noqa: PLW0603 - the console of this process
    err = _Console(stderr=True, highlight=False, soft_wrap=True, force_terminal=True)


def out() -> Console:
    """Return the console of results. A pipe has no width, so a wide one is assumed and nothing is cut."""
    if sys.stdout.isatty():
        return _Console(highlight=False)
    return _Console(highlight=False, width=500)


def say(message: str, *, style: str | None = None) -> None:
    """Print a message on stderr."""
    err.print(Text(message, style=style or ""))


def show_lines(*lines: str) -> None:
    """Print lines of a result as they are: they have neither markup nor emojis, as `x:1001` would."""
    for line in lines:
        out().print(Text(line), soft_wrap=True)


def show_error(error: TorchbakeError) -> None:
    """Print an error and its hint on stderr."""
    err.print(Text("error: ", style="bold red") + Text(error.message, style="not bold"))
    if error.hint:
        err.print(Text("  next: ", style="bold") + Text(error.hint, style="not bold"))


def show_json(value: Any) -> None:
    """Print a result for programs: JSON on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False).translate(_IN_JSON))


def show_result(form: str, value: Any, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a result as JSON if the format is `json`, else as a table."""
    if form == "json":
        show_json(value)
    else:
        show_table(columns, rows)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str | None = None) -> None:
    """Print a table for people. Without a terminal it has plain columns, no borders, and nothing is cut."""
    console = out()
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]  # no markup
    if console.is_terminal:
        table = _frame(columns, cells, console.width)
    else:
        table = Table(*(Column(name, no_wrap=True) for name in columns), box=None, pad_edge=False)
        for row in cells:
            table.add_row(*row)
    table.title, table.title_justify = title, "left"
    console.print(table)


def _frame(names: Sequence[str], rows: Sequence[Sequence[Text]], room: int) -> Table:
    """Lay out a table for a terminal: a rule below the headings, no empty columns, figures aligned right."""
    texts = [[name, *(row[place].plain for row in rows)] for place, name in enumerate(names)]
    visible = fill(texts) if rows else range(len(names))
    texts = [texts[place] for place in visible]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True, border_style="dim")
    for cells, width in zip(texts, widths(texts, room), strict=True):
        table.add_column(cells[0], width=width, overflow="fold", justify="right" if is_of_figures(cells) else "left")
    for row in rows:
        table.add_row(*(row[place] for place in visible))
    return table
