"""Steps and boards in a log: a line for each long step, a heartbeat, and nothing for short ones."""

import io
import re
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from torchbake.ui import console, ticker
from torchbake.ui.output_mode import OutputMode, display, mode, set_mode
from torchbake.ui.progress_board import Board, board
from torchbake.ui.steps import step

LONG = 0.15  # seconds, of a step that is worth a line here


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the times of the ticker short, and the mode that of a new process."""
    for name, seconds in (("TICK", 0.01), ("WORTH_A_LINE", 0.05), ("HEARTBEAT", 0.1)):
        monkeypatch.setattr(ticker, name, seconds)
    before = mode()
    set_mode(OutputMode())
    yield
    set_mode(before)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=file, width=200))
    return file


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=file, force_terminal=True, color_system=None, width=100))
    return file


def lines(file: io.StringIO) -> list[str]:
    return file.getvalue().splitlines()


def test_a_long_step_has_a_line_a_heartbeat_and_its_time(log: io.StringIO) -> None:
    with step("debian12: bootstrapping") as progress:
        progress.look("unpacking")
        time.sleep(LONG * 2)
    first, *beats, last = lines(log)
    assert first == "debian12: bootstrapping …"
    assert beats
    assert set(beats) == {"still: debian12: bootstrapping, unpacking (0 s)"}
    assert last == "debian12: bootstrapping: 0 s"


def test_a_short_step_is_silent_unless_verbose(log: io.StringIO) -> None:
    with step("short"):
        pass
    assert not lines(log)
    set_mode(OutputMode(verbose=True))
    with step("short"):
        pass
    assert lines(log) == ["short …", "short: 0 s"]


def test_a_failed_step_does_not_say_that_it_ended(log: io.StringIO) -> None:
    def fail() -> None:
        with step("long"):
            time.sleep(LONG)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert lines(log)[0] == "long …"
    assert "long: 0 s" not in lines(log)


def test_quiet_shows_no_progress_but_failures(log: io.StringIO) -> None:
    set_mode(OutputMode(quiet=True, progress="rich"))
    with step("long"):
        time.sleep(LONG)
    with board(2, doing="testing") as progress:
        for name, good in (("a", True), ("b", False)):
            progress.start(name, "begins")
            progress.log(name, "a step", 60)
            time.sleep(LONG)
            progress.end(name, "ended", good=good)
    assert [re.sub(r"^\[\d\d:\d\d\] ", "", line) for line in lines(log)] == ["✗ b: ended [2/2]"]


def test_an_image_without_a_line_has_a_heartbeat(log: io.StringIO) -> None:
    with board(1, doing="building") as progress:
        progress.start("cpu", "new")
        progress.look("cpu", "packing torch")
        time.sleep(LONG * 2)
        progress.end("cpu", "built", good=True)
    first, *beats, last = [re.sub(r"^\[\d\d:\d\d\] ", "", line) for line in lines(log)]
    assert (first, last) == ("cpu: building, new", "✓ cpu: built [1/1]")
    assert beats
    assert set(beats) == {"still: cpu: packing torch (0 s)"}


def test_verbose_writes_changes_of_an_image_now_and_then(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test suite reports each of its tests; the last report gets a line also if none follows."""
    start = time.monotonic()
    now = [start]
    monkeypatch.setattr(ticker, "WORTH_A_LINE", 1.9)
    monkeypatch.setattr(ticker, "HEARTBEAT", 60.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    set_mode(OutputMode(verbose=True))
    progress = Board(None, 1, "testing")
    progress.start("cpu", "new")
    for tick in range(10):
        now[0] = start + 0.1 + tick / 2
        for part in range(9 if tick < 6 else 0):
            progress.look("cpu", f"{tick}, {part}")
        progress.tick()
    progress.log("cpu", "short", 0.1)
    progress.end("cpu", "passed", good=True)
    assert lines(log)[1:-1] == ["[00:02] cpu: 4, 0", "[00:04] cpu: 5, 8", "[00:04] cpu: short (0.1 s)"]


def test_a_terminal_shows_a_step_as_a_live_row(terminal: io.StringIO) -> None:
    with step("cpu: locking") as progress:
        progress.look("1 of 2")
        console.say("a message")
        with step("an inner step"):  # shown as lines
            time.sleep(LONG)
    text = terminal.getvalue()
    assert re.search(r"\S cpu: locking 0:00:0\d 1 of 2", text)
    assert "an inner step …" in text
    assert not display.locked()


def test_plain_progress_draws_no_rows_on_a_terminal(terminal: io.StringIO) -> None:
    set_mode(OutputMode(progress="plain"))
    with step("cpu: locking"):
        time.sleep(LONG)
    with board(1, doing="testing") as progress:
        progress.start("cpu", "new")
        progress.end("cpu", "passed", good=True)
    assert "\x1b" not in terminal.getvalue()
    assert "cpu: locking …" in terminal.getvalue()


def test_durations_are_for_people() -> None:
    for seconds, text in ((0.4, "0 s"), (45, "45 s"), (60, "1 min 0 s"), (152.9, "2 min 32 s")):
        assert ticker.duration(seconds) == text
