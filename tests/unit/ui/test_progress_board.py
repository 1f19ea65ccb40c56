"""The board on a terminal: a long step is cut, and never the name or the time; the result stands apart from it."""

import io
import re

import pytest
from rich.console import Console

from torchbake.ui import console
from torchbake.ui.progress_board import board

NAME = "2.10.0-cuda12.8-cudnn9-runtime-debian12"
STEP = "81 %, after: it passes smoke.examples[gloo,2x2,workers-first]"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=file, force_terminal=True, color_system=None, width=80))
    return file


def test_a_long_step_is_cut_and_the_rest_of_the_row_is_not(terminal: io.StringIO) -> None:
    with board(2, doing="testing") as progress:
        progress.start("another", "begins")
        progress.start(NAME, "begins")
        progress.look(NAME, STEP)
        progress.end("another", "passed", good=True)  # a printed line draws the rows again
    rows = [line for line in re.split(r"\r|\n|\x1b\[2K", terminal.getvalue()) if "81 %" in line]
    assert rows
    for row in rows:
        assert re.fullmatch(rf"\S {NAME} 0:00:0\d 81 %, after: it .*…", row)
        assert len(row) <= 80


def test_finished_lines_stay_and_an_empty_one_ends_the_board(terminal: io.StringIO) -> None:
    with board(1, doing="testing") as progress:
        progress.start(NAME, "begins")
        progress.end(NAME, "passed", good=True)
    text = re.sub(r"\x1b\[\?25[lh]", "", terminal.getvalue())
    assert f"✓ {NAME}: passed [1/1]\n" in text
    assert re.search(r"\n\n\Z|\n(\r?\x1b\[2K)+\r?\n\Z", text)
