"""Facts about processes from /proc and the cgroup."""

import contextlib
import os
import re
from pathlib import Path


def state_of(pid: int) -> str:
    """Return the state letter of proc(5): T stopped by a signal, t by a debugger, Z dead; empty: gone."""
    with contextlib.suppress(OSError, IndexError):
        return _stat(pid)[0]
    return ""


def descendants(pid: int) -> list[int]:
    """List all descendants of a process, parents first; orphans that it has adopted are among them."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - the names are enough
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parents[int(name)] = int(_stat(int(name))[1])
    matches, layer = [], {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        matches += sorted(layer)
    return matches


def tree(pid: int) -> list[int]:
    """List a process and its descendants without reading any other process of the machine."""
    matches = [pid]
    for each in matches:  # the loop's body extends the list
        for file in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                matches += map(int, file.read_text().split())
    return matches


def usage_of(pid: int) -> tuple[float, int] | None:
    """Return the CPU seconds of a process and its resident bytes; None if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        fields = _stat(pid)
        ticks = int(fields[11]) + int(fields[12])  # utime and stime
        return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5)'s stat after the name, which may contain blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def out_of_memory() -> bool:
    """Return True if the kernel has killed a process of this container for lack of memory (cgroup v2 or v1)."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            return bool(re.search(r"^oom_kill [1-9]", Path("/sys/fs/cgroup", name).read_text(), re.MULTILINE))
    return False
