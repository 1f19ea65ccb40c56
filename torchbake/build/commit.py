"""The commit and the date in the labels of images."""

import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from torchbake.core.git import ask_git, head_commit, is_below_git, is_no_repository, run_git
from torchbake.errors import UsageError
from torchbake.oci.labels import CREATED, REVISION

_CONTENT_EPOCH = 1735689600  # 2025-01-01


def revision(root: Path) -> str:
    """Return the commit, with ``-dirty`` if tracked files differ from it; empty outside a repository.

    Raises UsageError with git's message if git fails.
    """
    commit = head_commit(root)
    return f"{commit}-dirty" if commit and ask_git(root, "status", "--porcelain", "--untracked-files=no") else commit


def commit_time(root: Path) -> str:
    """Return the time of SOURCE_DATE_EPOCH, or else of the commit, or else now, by RFC 3339.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    epoch = _source_date_epoch()
    if not epoch and head_commit(root):
        epoch = ask_git(root, "log", "-1", "--format=%ct")
    return rfc3339(int(epoch)) if epoch else rfc3339(int(time.time()))


def untrue_label(root: Path, labels: Mapping[str, str]) -> str:
    """Return why an image's labels of its revision and date are wrong, by git; empty if they are right.

    An inputs digest does not depend on them, so an image of an older commit may be up to date. But the commit must be
    in this repository, with this date. Without a repository, or in a shallow clone, that is not known. Raises
    UsageError with git's message if git fails.
    """
    if not is_below_git(root):
        return ""
    return _untrue(root, labels.get(REVISION, ""), labels.get(CREATED, ""), _source_date_epoch())


@cache
def _untrue(root: Path, revision: str, created: str, epoch: str) -> str:
    if not revision:
        head = head_commit(root)
        return f"its label {REVISION} is empty, and {root} is at commit {head[:12]}" if head else ""
    try:
        return _untrue_commit(root, revision, created, epoch)
    except FileNotFoundError:  # git is not installed
        return ""


def _untrue_commit(root: Path, revision: str, created: str, epoch: str) -> str:
    name = f"its label {REVISION} is {revision}"
    commit = revision.removesuffix("-dirty")
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return f"{name}, which is no commit"
    process = run_git(root, "log", "-1", "--no-show-signature", "--format=%ct", commit)
    if process.returncode:
        if is_no_repository(process) or ask_git(root, "rev-parse", "--is-shallow-repository") == "true":
            return ""
        return f"{name}, a commit that {root} does not have"
    times = [rfc3339(int(each)) for each in (process.stdout.decode(), epoch) if each]
    if created not in times:
        return f"its label {CREATED} is {created or 'empty'}, and its commit {commit[:12]} is of {times[0]}"
    return ""


def content_epoch() -> int:
    """Return the latest time of files in images, in seconds since the epoch: SOURCE_DATE_EPOCH, else a constant.

    Not the commit's time: files of a cached step may be older than the commit, and files of a new build are newer. The
    constant is before both, so both get the same time.
    """
    return int(_source_date_epoch() or _CONTENT_EPOCH)


def rfc3339(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _source_date_epoch() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not epoch.isdigit():
        raise UsageError(f"SOURCE_DATE_EPOCH={epoch!r} is not a whole number of seconds.", hint="Unset or correct it.")
    return epoch
