"""The examples, and what their READMEs tell people to type."""

import re

from torchbake.core.paths import TOOLKIT

FOLDER = TOOLKIT / "examples"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/job.yaml"))
JOBS = sorted(FOLDER.glob("*/job*.yaml"))
FROM_GIT = [path for path in JOBS if path.stem == "job-from-git"]


def lines_of(name: str) -> list[str]:
    """The lines of commands in an example's README."""
    return re.findall(r"(?m)^    (.*)$", (FOLDER / name / "README.md").read_text(encoding="utf-8"))


def runs_here(line: str) -> bool:
    """Return True if the line runs a job on this machine's engine."""
    return " show docker " in line and line.endswith("| sh")
