"""The progress of a run: on a terminal a live row for each image, elsewhere plain lines and a heartbeat."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.live import Live
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from torchbake.ui import console, ticker
from torchbake.ui.output_mode import display, mode


@dataclass
class _Row:
    """An image of a plain log: its current step, that of its last line, and its heartbeat."""

    step: str
    last_text: str
    heartbeat: ticker.Heartbeat = field(default_factory=ticker.Heartbeat)


class Board:
    """Shows the progress of each image. Thread-safe."""

    def __init__(self, bars: Bars | None, total: int, doing: str) -> None:
        self._bars = bars
        self._tasks: dict[str, int] = {}
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._total = total
        self._doing = doing
        self._end_count = 0
        self._started = time.monotonic()

    def start(self, name: str, reason: str) -> None:
        with self._lock:
            if self._bars:
                self._tasks[name] = self._bars.add_task(name, step=reason)
            else:
                self._rows[name] = _Row(step=reason, last_text=reason)
                self._say(f"{name}: {self._doing}, {reason}")

    def look(self, name: str, place: str) -> None:
        """Show how far an image is: on a terminal at once, in a log by a heartbeat, which would else get many lines.

        With `--verbose` a log gets a line also for a change, but none within two seconds after the image's last line.
        """
        with self._lock:
            if self._bars and name in self._tasks:
                self._bars.update(self._tasks[name], step=place)  # type: ignore[arg-type]
            elif row := self._rows.get(name):
                row.step = place
                self._write_change(name, row)

    def log(self, name: str, step: str, seconds: float) -> None:
        """Write a finished step of an image into a plain log, if it took long."""
        if self._bars or (seconds < ticker.WORTH_A_LINE and not mode().verbose):
            return
        with self._lock:
            if row := self._rows.get(name):
                row.heartbeat.wrote()
            self._say(f"{name}: {step} ({seconds:.1f} s)")

    def end(self, name: str, text: str, *, good: bool) -> None:
        with self._lock:
            self._end_count += 1
            self._rows.pop(name, None)
            if self._bars:
                self._bars.remove_task(self._tasks.pop(name))  # type: ignore[arg-type]
            if good and mode().quiet:
                return
            mark = Text("✓ ", style="green") if good else Text("✗ ", style="bold red")
            line = Text(f"{self._clock()} ") if not self._bars else Text("")
            console.err.print(line + mark + Text(f"{name}: {text} [{self._end_count}/{self._total}]"))

    def tick(self) -> None:
        """Write a line into a plain log for each image that had none for a while."""
        with self._lock:
            for name, row in self._rows.items():
                self._write_change(name, row)
                if line := row.heartbeat.line(f"{name}: {row.step}" if row.step else name):
                    self._say(line)

    def _write_change(self, name: str, row: _Row) -> None:
        if mode().verbose and row.step != row.last_text and row.heartbeat.is_quiet_for(ticker.WORTH_A_LINE):
            row.last_text = row.step
            row.heartbeat.wrote()
            self._say(f"{name}: {row.step}")

    def _say(self, line: str) -> None:
        if not mode().quiet:
            console.say(f"{self._clock()} {line}")

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"[{minutes:02d}:{seconds:02d}]"


@contextmanager
def live_rows() -> Iterator[Bars]:
    """Show live rows: a spinner, a name, the time since the start, and the current step, which alone is cut."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[step]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
    )
    bars = Bars(*columns, console=console.err, transient=True, expand=True)
    with Live(bars, console=console.err, transient=True, refresh_per_second=8):
        yield bars


@contextmanager
def board(total: int, *, doing: str) -> Iterator[Board]:
    """Make a board for ``total`` images. At its end, a terminal's live rows disappear, and its lines stay."""
    if not (mode().live(terminal=console.err.is_terminal) and display.acquire(blocking=False)):
        plain = Board(None, total, doing)
        with ticker.ticking(plain.tick):
            yield plain
        return
    try:
        with live_rows() as bars:
            yield Board(bars, total, doing)
        console.err.print()
    finally:
        display.release()
