"""The amount and the form of progress: options of every command, set once by the command line."""

import threading
from dataclasses import dataclass
from typing import Literal

ProgressForm = Literal["auto", "plain", "rich"]


@dataclass(frozen=True, kw_only=True)
class OutputMode:
    """With ``quiet`` no progress is shown, with ``verbose`` also short steps.

    ``progress`` is rich (live rows of a terminal), plain (lines), or auto: rich if stderr is a terminal.
    """

    quiet: bool = False
    verbose: bool = False
    progress: ProgressForm = "auto"

    def live(self, *, terminal: bool) -> bool:
        """Return whether progress is shown as live rows."""
        return not self.quiet and (terminal if self.progress == "auto" else self.progress == "rich")


_modes = [OutputMode()]
display = threading.Lock()  # of the terminal's live rows: rich draws one set of rows at a time


def mode() -> OutputMode:
    """Return the mode of this process."""
    return _modes[0]


def set_mode(new: OutputMode) -> None:
    """Set the mode of this process."""
    _modes[0] = new
