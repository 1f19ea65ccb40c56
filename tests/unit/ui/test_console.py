"""Tables: for a person on a terminal, and as plain columns for everything else."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.text import Text

from torchbake.ui import console

COLUMNS = ("image", "outcome", "passed", "time", "remark")
ROWS = [
    ("2.10.0-cuda12.8-cudnn9-runtime-debian12", Text("passed", style="green"), "64", "235.4 s", ""),
    ("volume-permissions", Text("passed", style="green"), "9", "8.1 s", ""),
]


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[str]]:
    """The table's lines on a terminal that is so wide; None: in a pipe."""

    def show(width: int | None) -> list[str]:
        file = io.StringIO()
        value = Console(file=file, force_terminal=width is not None, color_system=None, width=width or 500)
        monkeypatch.setattr(console, "out", lambda: value)
        console.show_table(COLUMNS, ROWS)
        return [line.rstrip() for line in file.getvalue().splitlines()]

    return show


def test_a_terminal_gets_a_rule_and_aligned_whole_names(
    text: Callable[[int | None], list[str]],
) -> None:
    assert text(80) == [
        "image                                    outcome  passed     time",
        "─────────────────────────────────────────────────────────────────",
        "2.10.0-cuda12.8-cudnn9-runtime-debian12  passed       64  235.4 s",
        "volume-permissions                       passed        9    8.1 s",
    ]


def test_nothing_is_lost_on_a_narrow_terminal(text: Callable[[int | None], list[str]]) -> None:
    lines = text(40)
    assert max(map(len, lines)) <= 40
    assert "".join(line.partition("  ")[0] for line in lines[2:5]).startswith(ROWS[0][0])


def test_a_pipe_gets_every_column_whole(text: Callable[[int | None], list[str]]) -> None:
    head, *rows = text(None)
    assert head.split() == [*COLUMNS]
    assert rows[0].split() == ["2.10.0-cuda12.8-cudnn9-runtime-debian12", "passed", "64", "235.4", "s"]


def test_a_table_without_rows_has_its_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(console, "out", lambda: Console(file=file, force_terminal=True, color_system=None, width=80))
    console.show_table(COLUMNS, [])
    assert file.getvalue().split("\n")[0].split() == [*COLUMNS]
