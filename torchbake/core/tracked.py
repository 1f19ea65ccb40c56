"""State that a checkout brings: files that git tracks where commands keep what they found out themselves.

Commands believe these files: which base is pinned, what an image was built from, which checks it passed. So they must
be of this machine, and not of whoever made a commit.
"""

import os
import re
import shlex
from pathlib import Path

from torchbake.core.git import is_below_git, run_git
from torchbake.core.paths import state_of
from torchbake.errors import UsageError

_VERDICT = re.compile(r"reports/[^/]+/[0-9a-f]+\.json")  # as torchbake/checks/reports.py names it


def check_untracked(root: Path) -> None:
    """Raise UsageError if git tracks state or a verdict of the project at ``root``."""
    files = _tracked(root)
    if files:
        more = f" and {len(files) - 1} more" if files[1:] else ""
        folders = {name.partition("/")[0] if name.startswith(".") else str(Path(name).parent) for name in files}
        raise UsageError(
            f"{root / files[0]}{more}: git tracks what commands keep, so a checkout decides what they believe.",
            hint=f"Remove it: git rm -rf {shlex.join(sorted(folders))}; and add it to .gitignore.",
        )


def _tracked(root: Path) -> list[str]:
    """The files of state and the verdicts that git tracks, relative to ``root``; none if git is not installed.

    Raises UsageError if git refuses the repository because somebody else owns it.
    """
    root = root.absolute()
    kept = state_of(root).exists() or (root / "reports").exists()
    if not kept or not is_below_git(root):
        return []
    try:
        done = run_git(root, "ls-files", "-z", "--", state_of(root).name, ":(glob)reports/*/*.json")
    except OSError:
        return []
    names = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    return [name for name in names if not name.startswith("reports/") or _VERDICT.fullmatch(name)]
