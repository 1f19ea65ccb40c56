"""Control groups (cgroups) for the processes of a machine, below the cgroups of this process."""

import contextlib
import os
import time
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_INHERITED = ("cpuset.cpus", "cpuset.mems")  # of the first version, where a new group is given none


def controllers() -> list[Path]:
    """One of cgroups' second version, several of the first."""
    one = (_CGROUPS / "cgroup.controllers").exists()
    return [_CGROUPS] if one else [path for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists()]


def as_own(name: str) -> dict[Path, str]:
    """Make new groups of this name; return them with their mount points, where a machine sees no other groups."""
    for controller in controllers():
        group = controller / name
        group.mkdir()
        for key in _INHERITED:
            if (controller / key).exists():
                (group / key).write_text((controller / key).read_text())
    return {controller / name: str(controller) for controller in controllers()}


def remove(name: str) -> None:
    """With all below. The kernel may need a moment to see their processes gone."""
    end = time.monotonic() + 10
    while left := [path for each in controllers() for path in _deepest_first(each / name)]:
        for path in left:
            with contextlib.suppress(OSError):
                path.rmdir()
        assert time.monotonic() < end, f"cgroups are still there: {left}"


def sweep(prefix: str) -> None:
    """Remove the groups whose name ends in the id of a process that has ended."""
    for group in [path for each in controllers() for path in each.glob(f"{prefix}*")]:
        if not Path("/proc", group.name.removeprefix(prefix)).exists():
            remove(group.name)


def _deepest_first(folder: Path) -> list[Path]:
    return [Path(path) for path, _, _ in os.walk(folder, topdown=False)]
