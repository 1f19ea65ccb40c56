"""The commit that images are built from, for their labels."""

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
    """Return the commit, with ``-dirty`` when tracked files differ from it; empty outside a repository.

    Raises UsageError with git's words if git cannot tell.
    """
    commit = head_commit(root)
    return f"{commit}-dirty" if commit and ask_git(root, "status", "--porcelain", "--untracked-files=no") else commit


def created(root: Path) -> str:
    """RFC 3339: SOURCE_DATE_EPOCH, else the commit's time, else now.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    epoch = _source_date_epoch()
    if not epoch and head_commit(root):
        epoch = ask_git(root, "log", "-1", "--format=%ct")
    return rfc3339(int(epoch)) if epoch else rfc3339(int(time.time()))


def untrue_label(root: Path, labels: Mapping[str, str]) -> str:
    """Return what git says against an image's labels of its revision and date; empty if they agree.

    No inputs digest has these labels, so an image of an older commit may be up to date. But it must name a commit of
    this repository, with its date. Without a repository, and in a shallow clone without that commit, nobody can tell.
    Raises UsageError with git's words if git cannot tell.
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
    named = f"its label {REVISION} is {revision}"
    commit = revision.removesuffix("-dirty")
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return f"{named}, which is no commit"
    done = run_git(root, "log", "-1", "--no-show-signature", "--format=%ct", commit)
    if done.returncode:
        if is_no_repository(done) or ask_git(root, "rev-parse", "--is-shallow-repository") == "true":
            return ""
        return f"{named}, a commit that {root} does not have"
    times = [rfc3339(int(each)) for each in (done.stdout.decode(), epoch) if each]
    if created not in times:
        return f"its label {CREATED} is {created or 'empty'}, and its commit {commit[:12]} is of {times[0]}"
    return ""


def content_epoch() -> int:
    """The latest time, in seconds, of files in bases and reproducible images: SOURCE_DATE_EPOCH, else constant.

    Not the commit's time: files of a cached step are older than a commit that came after it, and those of a cold
    build are not. Before all of them, both become the same.
    """
    return int(_source_date_epoch() or _CONTENT_EPOCH)


def rfc3339(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _source_date_epoch() -> str:
    """As the environment says; empty where it does not."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not epoch.isdigit():
        raise UsageError(f"SOURCE_DATE_EPOCH={epoch!r} is not a whole number of seconds.", hint="Unset or correct it.")
    return epoch
