"""The environment of a tool that a command starts, with a note about variables that the tool does not inherit."""

import os
import threading
from functools import cache

from torchbake.core.tool_variables import ToolName, inherited_variables, note_of_ignored
from torchbake.ui import console

_NOTING = threading.Lock()  # several images are locked, packed or built in parallel


def environment_of(tool: ToolName) -> dict[str, str]:
    """Return the variables that a tool inherits from this process.

    Variables that are ignored and would change its answer are named on stderr once.
    """
    with _NOTING:
        _note(note_of_ignored(os.environ, tool))
    return inherited_variables(tool, os.environ)


@cache
def _note(text: str) -> None:
    if text:
        console.say(text, style="yellow")
