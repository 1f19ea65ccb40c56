"""The available memory of this machine.

Sources: https://docs.kernel.org/filesystems/proc.html (MemAvailable),
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_MEMORY = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)


def spare_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the available bytes; 0 if this process has a memory limit, or if the kernel reports neither."""
    try:
        memory = {name: int(size) * 1024 for name, size in _MEMORY.findall((proc / "meminfo").read_text())}
        limits = [*_limits((proc / "self/cgroup").read_text(), groups)]
    except (OSError, ValueError):
        return 0
    unlimited = limits and min(limits) >= memory.get("MemTotal", 0)
    return memory.get("MemAvailable", 0) if unlimited else 0


def _limits(own: str, groups: Path) -> Iterator[float]:
    """Yield the memory limits of a process's cgroups and their parents, as far as they are visible here."""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        places: list[tuple[Path, str]] = []
        if not controllers:  # cgroup version 2
            places = [(groups, "memory.max"), (groups / "unified", "memory.max")]
        elif "memory" in controllers.split(","):
            places = [(groups / "memory", "memory.limit_in_bytes")]
        for folder, name in places:
            for parent in (Path(path), *Path(path).parents):
                with contextlib.suppress(FileNotFoundError):
                    limit = (folder / str(parent).lstrip("/") / name).read_text().strip()
                    yield float("inf") if limit == "max" else float(limit)
