"""Long steps that are not of one image of many: on a terminal a live row, elsewhere lines and a heartbeat."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torchbake.ui import console, ticker
from torchbake.ui.output_mode import display, mode


class Step:
    """A step with its text. Thread-safe."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, ""
        self._lock = threading.Lock()
        self._heartbeat = ticker.Heartbeat()
        self._has_line = False

    def look(self, place: str) -> None:
        """Show how far the step is."""
        self.place = place

    def begin(self) -> None:
        if mode().verbose:
            self._say(f"{self.text} …")

    def tick(self) -> None:
        """Write the step into a plain log as soon as it lasts, and again after each heartbeat without a line."""
        if self._has_line:
            line = self._heartbeat.line(f"{self.text}, {self.place}" if self.place else self.text)
        else:
            line = f"{self.text} …" if self._heartbeat.is_quiet_for(ticker.WORTH_A_LINE) else ""
        if line:
            self._say(line)

    def end(self) -> None:
        if self._has_line:
            self._say(f"{self.text}: {ticker.duration(time.monotonic() - self._heartbeat.began)}")

    def _say(self, line: str) -> None:
        with self._lock:
            self._has_line = True
            self._heartbeat.wrote()
        console.say(line, style="dim")


@contextmanager
def step(text: str) -> Iterator[Step]:
    """Show a step that may take more than two seconds, such as "debian12: bootstrapping bookworm".

    If another step or a board has the terminal's live rows, the step is written as lines.
    """
    current = Step(text)
    if mode().quiet:
        yield current
        return
    with ExitStack() as ending:
        if mode().live(terminal=console.err.is_terminal) and display.acquire(blocking=False):
            ending.callback(display.release)
            from torchbake.ui.progress_board import live_rows  # noqa: PLC0415 - a log needs no live rows

            bars = ending.enter_context(live_rows())
            task = bars.add_task(text, step="")
            current.look = lambda place: bars.update(task, step=place)  # type: ignore[method-assign,misc,unused-ignore]
            yield current
            return
        ending.enter_context(ticker.ticking(current.tick))
        current.begin()
        yield current
    current.end()
