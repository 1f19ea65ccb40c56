"""The commit that images are built from, for their labels."""

import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from torchbake.errors import UsageError

_CONTENT_EPOCH = 1735689600  # 2025-01-01


def revision(root: Path) -> str:
    """The commit, with ``-dirty`` when tracked files differ from it; empty outside a repository."""
    commit = _git(root, "rev-parse", "HEAD")
    return f"{commit}-dirty" if commit and _git(root, "status", "--porcelain", "--untracked-files=no") else commit


def created(root: Path) -> str:
    """RFC 3339: SOURCE_DATE_EPOCH, else the commit's time, else now.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    epoch = _source_date_epoch() or _git(root, "log", "-1", "--format=%ct")
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


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
