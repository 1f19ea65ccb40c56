"""Tests run in parallel on one engine: recognize the objects of another test run."""

import os
from pathlib import Path

from torchbake.engine.owner import has_ended


def is_anothers(owner: str) -> bool:
    """Return True if the owner still runs and is neither this process nor its descendant: a parallel test run."""
    return bool(owner) and not has_ended(owner, same_machine=True) and not _is_below(owner.split("/")[2], os.getpid())


def _is_below(pid: str, ancestor: int) -> bool:
    """Return True if ``pid`` is ``ancestor`` or one of its descendants."""
    while pid not in ("0", str(ancestor)):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = stat.rpartition(")")[2].split()[1]
    return pid != "0"
