"""Run git. Every failure is an error, except that a folder is in no repository."""

import os
import subprocess
from pathlib import Path

from torchbake.core.plain_text import last_line
from torchbake.core.tool_variables import inherited_variables
from torchbake.errors import UsageError

_NO_REPOSITORY = b"not a git repository"
_BY_FILE = "not a git repository: "  # the message about a file `.git`; a folder's goes on "(or any of the parent …"
# A clone can contain a folder that git takes for a bare repository, and git runs programs that a repository's
# configuration names. Known since git 2.38; older versions ignore the first setting.
_SAFE = ("-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false")


def run_git(
    folder: Path, *words: str, stdin: bytes = b"", limit: float | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run git in a folder. Raises UsageError if git refuses its repository: somebody else owns it, or it is damaged.

    Raises also FileNotFoundError if git is not installed, and subprocess.TimeoutExpired after ``limit`` seconds.
    """
    # Without optional locks no hook runs after `status`, and root leaves no index that its owner cannot write.
    own = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    environment = {**inherited_variables("git", os.environ), **own}
    process = subprocess.run(
        ["git", *_SAFE, "-C", str(folder), *words], env=environment,
        input=stdin, capture_output=True, timeout=limit, check=False,
    )  # fmt: skip
    errors = process.stderr.decode(errors="replace").splitlines()
    advice = [line.strip() for line in errors if "safe.directory" in line]
    if process.returncode and advice:
        raise UsageError(f"git refuses to read {folder}: {errors[0]}", hint=f"If you trust it: {advice[0]}")
    if is_no_repository(process) and (lost := _git_of(folder)):
        raise _lost_repository(errors[0], lost)
    return process


def ask_git(folder: Path, *words: str, limit: float | None = None) -> str:
    """Return git's output; empty if the folder is in no repository, or if git ends with an error and no message.

    Raises UsageError with git's message for every other failure, and the errors of `run_git`.
    """
    process = run_git(folder, *words, limit=limit)
    if process.returncode and process.stderr and not is_no_repository(process):
        raise git_failure(process, folder)
    return "" if process.returncode else os.fsdecode(process.stdout).rstrip("\n")


def is_below_git(folder: Path) -> bool:
    """Return whether the folder or a parent has `.git`; if none has, git need not be started."""
    folder = folder.absolute()
    return any((each / ".git").exists() for each in (folder, *folder.parents))


def _git_of(folder: Path) -> Path | None:
    """Return the `.git` that git should read: of the folder, or of a parent on the same file system."""
    folder = folder.absolute()
    for each in (folder, *folder.parents):
        if not each.exists() or each.stat().st_dev != folder.stat().st_dev:
            return None
        if (each / ".git").exists():
            return each / ".git"
    return None


def _lost_repository(message: str, lost: Path) -> UsageError:
    """Return the error for a `.git` without its repository: ``lost``, or one of a submodule."""
    if _BY_FILE not in message:
        return UsageError(
            f"git finds no repository at {lost}: {message}",
            hint=f"Restore its files, such as HEAD; or remove {lost}, if it is no repository.",
        )
    place = f"at {lost}" if lost.is_file() else f"of a submodule below {lost.parent}"
    return UsageError(
        f"git finds no repository {place}: {message}",
        hint="A .git file names that folder: mount it too, in a container. After a move: git worktree repair; or "
        "remove the submodule's folder, then git submodule update --init",
    )


def is_no_repository(process: "subprocess.CompletedProcess[bytes]") -> bool:
    """Return whether git failed because the folder is in no repository."""
    return bool(process.returncode) and _NO_REPOSITORY in process.stderr


def head_commit(folder: Path, *options: str, limit: float | None = None) -> str:
    """Return the checked out commit; empty outside a repository, before its first commit, or without git."""
    try:
        return ask_git(folder, "rev-parse", "--verify", "--quiet", *options, "HEAD", limit=limit)
    except FileNotFoundError:
        return ""


def git_failure(process: "subprocess.CompletedProcess[bytes]", folder: Path) -> UsageError:
    """Return the error for a failed git command, with git's last message."""
    message = last_line(process.stderr.decode(errors="replace"), nothing=f"it ended with {process.returncode}")
    command = process.args[process.args.index("-C") + 2]
    hint = "Repair the repository: git fsck"
    if "safe.bareRepository" in message:
        hint = f"Remove HEAD, objects and refs from {folder}, unless you need them there."
    return UsageError(f"git {command} fails in {folder}: {message}", hint=hint)
