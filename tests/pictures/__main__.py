"""`nox -s pictures`: make the pictures in docs/pictures again, from the engine's images.

Build and test the images of IMAGES first, or the pictures show them as missing.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from tests.e2e.browser import NoBrowserError
from tests.pictures import COMMANDS, FOLDER, IMAGES
from tests.pictures.page import photograph
from tests.pictures.terminal import CommandError, drawn, staying, write
from torchbake import environment
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT

_NOT_OURS = ("NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS", "LINES", "NOXSESSION", "NOXFORCEPYTHON")


def main() -> None:
    environment.ensure(TOOLKIT)  # nox would say at its first call that it makes one
    FOLDER.mkdir(exist_ok=True)
    write_text(FOLDER / "terminal.svg", drawn(_session(), title="torchbake"))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "index.html"
        write([*_nox(), "-s", "report", "--", *IMAGES, "--output", str(page)], _environment())
        photograph(page, FOLDER / "report.png", tools=TOOLKIT / ".torchbake/tools/chromium")
    for picture in sorted(FOLDER.glob("*.*g")):
        print(f"{picture.relative_to(TOOLKIT)}: {picture.stat().st_size:,} bytes")


def _session() -> list[str]:
    """Each command behind a prompt, and what stays on the terminal of it."""
    lines: list[str] = []
    for words in COMMANDS:
        matches = staying(write([*_nox(), *words], _environment()))
        while matches and not matches[-1]:
            matches.pop()
        lines += [*([""] if lines else []), f"\x1b[1m$ {shlex.join(['nox', *words])}\x1b[0m", *matches]
    return lines


def _nox() -> list[str]:
    return [sys.executable, "-m", "nox", "--noxfile", str(TOOLKIT / "noxfile.py")]


def _environment() -> dict[str, str]:
    """A colour terminal's."""
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return variables | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}


if __name__ == "__main__":
    try:
        main()
    except (CommandError, NoBrowserError) as error:
        sys.exit(str(error))
