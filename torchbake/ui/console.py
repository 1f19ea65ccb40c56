"""What people see: messages on stderr, results on stdout; colour only on a terminal."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from torchbake.errors import TorchbakeError
from torchbake.ui.typed import as_typed

# What steers a terminal, in words of a registry or a tool: C0 but for tab and newline, C1, and changes of direction.
_STEERING = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_ESCAPED = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _STEERING - {0x09, 0x0A}}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING if code > 0x20}


class _Console(Console):
    """Shows as text what would steer a terminal; its own colours are no text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=segment.text.translate(_ESCAPED))


# highlight=False: rich would colour numbers inside messages, which distracts in a build log.
err = _Console(stderr=True, highlight=False, soft_wrap=True)


def out() -> Console:
    """The console of results. A pipe has no width of its own: nothing is cut there."""
    if sys.stdout.isatty():
        return _Console(highlight=False)
    return _Console(highlight=False, width=500)


def say(message: str, *, style: str | None = None) -> None:
    """One line for a person, on stderr."""
    err.print(Text(as_typed(message), style=style or ""))


def show_error(error: TorchbakeError) -> None:
    """What is wrong, and the next step."""
    err.print(Text("error: ", style="bold red") + Text(as_typed(error.message), style="not bold"))
    if error.hint:
        err.print(Text("  next: ", style="bold") + Text(as_typed(error.hint), style="not bold"))


def show_json(value: Any) -> None:
    """A result for a program: JSON alone on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False).translate(_IN_JSON))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str | None = None) -> None:
    """A result for a person. Without a terminal: plain columns, no borders, nothing cut."""
    console = out()
    table = Table(title=title, title_justify="left", box=None if not console.is_terminal else _box(), pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=not console.is_terminal, overflow="fold")
    for row in rows:
        table.add_row(*(Text(as_typed(cell)) if isinstance(cell, str) else cell for cell in row))  # no text is markup
    console.print(table)


def _box() -> Any:
    from rich import box  # noqa: PLC0415 - only for terminals

    return box.SIMPLE_HEAD
