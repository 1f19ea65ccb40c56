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
_ELSEWHERE = ("120000", "160000")  # git's modes of a link and of a submodule, which may lead to other committed files


def check_untracked(root: Path) -> None:
    """Raise UsageError if git tracks state or a verdict of the project at ``root``, or cannot list its files."""
    state = state_of(root.absolute())
    if not (state.exists() or (root / "reports").exists()) or not is_below_git(root):
        return
    try:
        process = run_git(state.parent, "ls-files", "--stage", "-z", "--", state.name, "reports")
    except OSError:  # git is not installed
        return
    if process.returncode and not is_no_repository(process):
        raise git_failure(process, root)
    entries = [os.fsdecode(entry).partition("\t") for entry in process.stdout.split(b"\0") if entry]
    files = [name for head, _, name in entries if _is_state(name, mode=head.partition(" ")[0])]
    if files:
        more = f" and {len(files) - 1} more" if files[1:] else ""
        raise UsageError(
            f"{root / files[0]}{more}: git tracks torchbake's state, so a commit could forge the results of checks.",
            hint=f"Remove it: git rm -rf {shlex.join(sorted(set(map(_folder, files))))}; and add it to .gitignore.",
        )


def _is_state(name: str, *, mode: str) -> bool:
    """Return whether a tracked path is state or a verdict, or leads to one outside of the folder of reports."""
    leads_away = mode in _ELSEWHERE and name.count("/") < 2
    return not name.startswith("reports") or _VERDICT.fullmatch(name) is not None or leads_away


def _folder(name: str) -> str:
    """Return the path to remove: all state, the folder of a verdict, or the link itself."""
    if not name.startswith("reports"):
        return name.partition("/")[0]
    return str(Path(name).parent) if _VERDICT.fullmatch(name) else name
