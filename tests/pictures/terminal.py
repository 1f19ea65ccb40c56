"""A terminal's picture: the lines that stay on it when commands have ended, as SVG that loads nothing."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from io import StringIO

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS = 96  # what can be read where GitHub shows a page
_ROWS = 50
_STEPS = re.compile(r"\r\n|\r|\n|\x1b\[\d*A|\x1b\[2?K|\x1b\[\?25[lh]|\x1b\[[\d;]*m|[^\x1b\r\n]+")
# Paper and ink of templates/report.css in the dark, and its colours for bad, good and waiting states, and for links.
_DARK = ((0x16, 0x17, 0x19), (0xE7, 0xE4, 0xDD))
_BAD, _GOOD, _WAIT, _LINK = (0xF0, 0x99, 0x8D), (0x83, 0xC9, 0xA0), (0xDC, 0xB5, 0x6D), (0x8D, 0xC1, 0xDE)
_THEME = TerminalTheme(*_DARK, [_DARK[0], _BAD, _GOOD, _WAIT, _LINK, (0xD3, 0xA5, 0xD8), (0x7F, 0xC8, 0xCC), _DARK[1]])
# As rich frames a terminal, but with fonts that readers have: a picture on GitHub may load none.
_FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g class="{unique_id}-matrix" transform="translate({terminal_x}, {terminal_y})"
 clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
{matrix}
</g>
</svg>
"""


class CommandError(Exception):
    """A command that failed, with its output."""


def write(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the output of a command in a new terminal. Raises CommandError if it fails."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env, start_new_session=True) as process:
        os.close(its)
        text = _read(ours).decode(errors="replace")
    if process.returncode:
        raise CommandError(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
    return text


def staying(text: str) -> list[str]:
    """Return the lines that stay on a terminal, with their colours, without overwritten or erased text."""
    lines, row, fresh = [""], 0, False
    for step in _STEPS.findall(text):
        if step in ("\n", "\r\n"):
            row, fresh = row + 1, False
            lines += [""] * (row + 1 - len(lines))
        elif step.endswith("A") and step.startswith("\x1b"):
            row = max(0, row - int(step[2:-1] or 1))
        elif step == "\r":
            fresh = True
        elif step.endswith("K") and step.startswith("\x1b"):
            lines[row] = ""
        elif not step.startswith("\x1b[?"):
            lines[row], fresh = (step if fresh else lines[row] + step), False
    return lines


def drawn(lines: Sequence[str], *, title: str) -> str:
    """Lines with colours, as a terminal shows them, as SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in (*lines, ""):  # rich does not clip the last line
        console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)
    return console.export_svg(title=title, theme=_THEME, code_format=_FRAME, font_aspect_ratio=0.6, unique_id="t")


def _read(terminal: int) -> bytes:
    """Everything until nobody writes any more, which Linux tells by an error."""
    parts = []
    try:
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(terminal)
    return b"".join(parts)
