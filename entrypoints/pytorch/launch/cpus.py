"""The number of CPUs that this container may use, from its affinity mask and its cgroup's quota.

`docker run --cpus=2` and a Kubernetes limit are quotas. They leave all cores of the machine visible. OpenMP and torch
then start a thread for each core, and the kernel throttles them for most of every 100 ms.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cpus:
    """The number of cores in the affinity mask, and the cgroup's limit in cores (None: no limit)."""

    bound: int
    quota: float | None = None

    @property
    def usable(self) -> int:
        """Return whole cores: if the quota is too small for one thread, all other threads wait for it."""
        return self.bound if self.quota is None else max(1, min(self.bound, math.floor(self.quota)))

    def threads(self, processes: int) -> int | None:
        """Return OMP_NUM_THREADS for each of so many processes; None if torch's default is right."""
        if processes == 1 and self.usable == self.bound:
            return None  # torch takes the physical cores
        return max(1, self.usable // processes)

    @property
    def sentence(self) -> str:
        """Describe the limit; empty if there is none."""
        if self.usable == self.bound:
            return ""
        return f"CPUs {self.usable} of {self.bound} (the container's limit is {self.quota:g})"


def look(proc: Path = Path("/proc")) -> Cpus:
    """Read the CPUs of this process."""
    return Cpus(bound=len(os.sched_getaffinity(0)), quota=quota_of(proc))


def quota_of(proc: Path) -> float | None:
    """Return the smallest quota of this process's cgroup and its visible parents, of cgroup version 1 or 2."""
    quotas: list[float] = []
    with contextlib.suppress(OSError, ValueError):
        mounts = list(_mounts((proc / "self/mountinfo").read_text()))
        for line in (proc / "self/cgroup").read_text().splitlines():
            hierarchy, controllers, path = line.split(":", 2)
            version = 2 if hierarchy == "0" and not controllers else 1 if "cpu" in controllers.split(",") else 0
            for _, root, folder in (mount for mount in mounts if mount[0] == version):
                quotas += _quotas(folder, root, path)
    return min(quotas, default=None)


def _mounts(text: str) -> Iterator[tuple[int, str, Path]]:
    """Yield the version, the root in the hierarchy and the folder of each cgroup mount with CPU quotas."""
    for line in text.splitlines():
        words, _, kinds = (part.split() for part in line.partition(" - "))
        if kinds[:1] == ["cgroup2"]:
            yield 2, words[3], Path(words[4])
        elif kinds[:1] == ["cgroup"] and "cpu" in kinds[2].split(","):
            yield 1, words[3], Path(words[4])


def _quotas(folder: Path, root: str, path: str) -> Iterator[float]:
    """Yield the quotas from the mount's folder down to the process's cgroup."""
    names, top = path.strip("/").split("/"), [name for name in root.split("/") if name]
    inside = names[: len(top)] == top and ".." not in names
    below = [name for name in names[len(top) :] if name] if inside else []
    for depth in range(len(below) + 1):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = _read(folder.joinpath(*below[:depth]))
            if quota > 0:
                yield quota / period


def _read(folder: Path) -> tuple[int, int]:
    """Read the microseconds of CPU in each period. Raises OSError or ValueError (`max`) if there is no limit."""
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota), int(period)
    return int((folder / "cpu.cfs_quota_us").read_text()), int((folder / "cpu.cfs_period_us").read_text())
