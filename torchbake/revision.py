"""The commit that images are built from, for their labels."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from torchbake.errors import UsageError


def revision(root: Path) -> str:
    """The commit, with ``-dirty`` when tracked files differ from it; empty outside a repository."""
    commit = _git(root, "rev-parse", "HEAD")
    return f"{commit}-dirty" if commit and _git(root, "status", "--porcelain", "--untracked-files=no") else commit


def created(root: Path) -> str:
    """RFC 3339: SOURCE_DATE_EPOCH, else the commit's time, else now.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct")
    if epoch and not epoch.isdigit():
        raise UsageError(f"SOURCE_DATE_EPOCH={epoch!r} is not a whole number of seconds.", hint="Unset or correct it.")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
