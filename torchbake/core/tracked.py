"""Refuse a project whose git tracks files of torchbake's state.

Commands trust these files: the pinned base, the inputs of an image, the passed checks. So this machine must have
written them, not the author of a commit.
"""

import os
import re
import shlex
from pathlib import Path

from torchbake.core.git import git_failure, is_below_git, is_no_repository, run_git
from torchbake.core.paths import state_of
from torchbake.errors import UsageError

_VERDICT = re.compile(r"reports/[^/]+/[0-9a-f]+\.json")  # as torchbake/checks/reports.py names it


def check_untracked(root: Path) -> None:
    """Raise UsageError if git tracks state or a verdict of the project at ``root``, or cannot list its files."""
    state = state_of(root.absolute())
    if not (state.exists() or (root / "reports").exists()) or not is_below_git(root):
        return
    try:
        process = run_git(state.parent, "ls-files", "-z", "--", state.name, ":(glob)reports/*/*.json")
    except OSError:  # git is not installed
        return
    if process.returncode and not is_no_repository(process):
        raise git_failure(process, root)
    names = [os.fsdecode(name) for name in process.stdout.split(b"\0") if name]
    files = [name for name in names if not name.startswith("reports/") or _VERDICT.fullmatch(name)]
    if files:
        more = f" and {len(files) - 1} more" if files[1:] else ""
        folders = {name.partition("/")[0] if name.startswith(".") else str(Path(name).parent) for name in files}
        raise UsageError(
            f"{root / files[0]}{more}: git tracks torchbake's state, so a commit could forge the results of checks.",
            hint=f"Remove it: git rm -rf {shlex.join(sorted(folders))}; and add it to .gitignore.",
        )
