"""What /proc and the cgroup tell about processes."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path


def state_of(pid: int) -> str:
    """One letter of proc(5): R runs, S sleeps, T is stopped by a signal, t by a debugger, Z is dead; empty: gone."""
    with contextlib.suppress(OSError, IndexError):
        return _stat(pid)[0]
    return ""


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first."""
    parents = dict(_parents())
    found, layer = [], {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        found += sorted(layer)
    return found


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all it takes
        if name.isdigit() and (parent := _parent(int(name))):
            yield int(name), parent


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_stat(pid)[1])
    return 0


def tree(pid: int) -> list[int]:
    """A process and all below it, without a look at any other process of the machine."""
    found = [pid]
    for each in found:  # grows meanwhile
        for file in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, file.read_text().split())
    return found


def usage_of(pid: int) -> tuple[float, int] | None:
    """Seconds of CPU that a process has taken, and its bytes in memory; None if it is gone."""
    with contextlib.suppress(OSError, IndexError):
        fields = _stat(pid)
        ticks = int(fields[11]) + int(fields[12])  # utime and stime
        return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s stat behind the name, which may hold blanks and brackets itself."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def out_of_memory() -> bool:
    """Whether the kernel has killed in this container for lack of memory (cgroup v2 or v1)."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError):
            return bool(re.search(r"^oom_kill [1-9]", Path("/sys/fs/cgroup", name).read_text(), re.MULTILINE))
    return False
