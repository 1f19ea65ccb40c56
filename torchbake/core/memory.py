"""Memory of this machine that nobody else wants.

Sources: https://docs.kernel.org/filesystems/proc.html (MemAvailable), https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_MEMORY = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)


def spare_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The bytes that are available; 0 where this process has a limit of its own, or nobody tells."""
    try:
        told = {name: int(size) * 1024 for name, size in _MEMORY.findall((proc / "meminfo").read_text())}
        limits = [*_limits((proc / "self/cgroup").read_text(), groups)]
    except (OSError, ValueError):
        return 0
    free_to_all = limits and min(limits) >= told.get("MemTotal", 0)
    return told.get("MemAvailable", 0) if free_to_all else 0


def _limits(own: str, groups: Path) -> Iterator[float]:
    """Of the groups that hold a process, from its own up, as far as they can be seen from here."""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for folder, name in _folders(controllers, groups):
            for parent in (Path(path), *Path(path).parents):
                with contextlib.suppress(FileNotFoundError):
                    limit = (folder / str(parent).lstrip("/") / name).read_text().strip()
                    yield float("inf") if limit == "max" else float(limit)


def _folders(controllers: str, groups: Path) -> Iterator[tuple[Path, str]]:
    """Where the limits of a hierarchy are, and what they are called: of version 2, which has no name, and of 1."""
    if not controllers:
        yield groups, "memory.max"
        yield groups / "unified", "memory.max"
    elif "memory" in controllers.split(","):
        yield groups / "memory", "memory.limit_in_bytes"
