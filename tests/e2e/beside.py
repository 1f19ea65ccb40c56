"""Tests run side by side on one engine: what there is of another's."""

import os
from pathlib import Path

from torchbake.engine.owner import has_ended


def is_anothers(owner: str) -> bool:
    """Whether a living process started it that none of ours has started: another test's, beside this one."""
    return bool(owner) and not has_ended(owner, same_machine=True) and not _is_below(owner.split("/")[2], os.getpid())


def _is_below(pid: str, ancestor: int) -> bool:
    """Whether the one process is the other, or was started by it or by what it started."""
    while pid not in ("0", str(ancestor)):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = stat.rpartition(")")[2].split()[1]
    return pid != "0"
