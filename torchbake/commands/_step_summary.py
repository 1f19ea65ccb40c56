"""The summary that GitHub Actions shows of a step."""

import os
from collections.abc import Sequence
from pathlib import Path

from torchbake.ui import console

_PAGE = "GITHUB_STEP_SUMMARY"


def append_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Add a table to the summary, if the variable GITHUB_STEP_SUMMARY names its file.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#adding-a-job-summary
    """
    page = os.environ.get(_PAGE)
    if not page:
        return
    whole = [head, ("---",) * len(head), *rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in whole]
    try:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")
    except OSError as error:
        console.say(f"{_PAGE}={page} cannot be written: {error.strerror}", style="yellow")
