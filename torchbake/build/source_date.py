"""The commit that images are built from, for their labels."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from torchbake.core.git import ask_git, head_commit
from torchbake.errors import UsageError

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
