"""The progress of a run: on a terminal a live row for each image, elsewhere plain lines."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from torchbake.ui import console

_WORTH_A_LINE = 2.0  # seconds; shorter steps would bury the long ones in a CI log


class Board:
    """Shows the progress of each image. Thread-safe."""

    def __init__(self, bars: Bars | None, total: int, doing: str) -> None:
        self._bars = bars
        self._tasks: dict[str, int] = {}
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
                console.say(f"{self._clock()} {name}: {self._doing}, {reason}")

    def look(self, name: str, place: str) -> None:
        """Show how far an image is, on a terminal only: a log would get too many lines."""
        with self._lock:
            if self._bars and name in self._tasks:
                self._bars.update(self._tasks[name], step=place)  # type: ignore[arg-type]

    def log(self, name: str, step: str, seconds: float) -> None:
        """Write a finished step of an image into a plain log, if it took long."""
        if self._bars or seconds < _WORTH_A_LINE:
            return
        with self._lock:
            console.say(f"{self._clock()} {name}: {step} ({seconds:.1f} s)")

    def end(self, name: str, text: str, *, good: bool) -> None:
        with self._lock:
            self._end_count += 1
            if self._bars:
                self._bars.remove_task(self._tasks.pop(name))  # type: ignore[arg-type]
            mark = Text("✓ ", style="green") if good else Text("✗ ", style="bold red")
            line = Text(f"{self._clock()} ") if not self._bars else Text("")
            console.err.print(line + mark + Text(f"{name}: {text} [{self._end_count}/{self._total}]"))

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"[{minutes:02d}:{seconds:02d}]"


@contextmanager
def board(total: int, *, doing: str) -> Iterator[Board]:
    """Make a board for ``total`` images. At its end, a terminal's live rows disappear, and its lines stay."""
    if not console.err.is_terminal:
        yield Board(None, total, doing)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        # A line that is too long is cut in this column only.
        TextColumn("{task.fields[step]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
    )
    bars = Bars(*columns, console=console.err, transient=True, expand=True)
    with Live(bars, console=console.err, transient=True, refresh_per_second=8):
        yield Board(bars, total, doing)
    console.err.print()
