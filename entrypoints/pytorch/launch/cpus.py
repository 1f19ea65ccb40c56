"""How many CPUs this container may use: what it is bound to, and what its cgroup's quota lets it run.

`docker run --cpus=2` and a Kubernetes limit are quotas. They leave all cores of the machine visible, so that OpenMP and
torch start a thread on each and are then throttled, for most of every 100 ms.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cpus:
    """``bound`` is the number of cores in the affinity mask, ``quota`` the cgroup's limit in cores; None: no limit."""

    bound: int
    quota: float | None = None

    @property
    def usable(self) -> int:
        """Whole cores: a thread more than the quota feeds makes all of them wait for it."""
        return self.bound if self.quota is None else max(1, min(self.bound, math.floor(self.quota)))

    def threads(self, processes: int) -> int | None:
        """OMP_NUM_THREADS for each of so many processes; None where torch's own choice is right."""
        if processes == 1 and self.usable == self.bound:
            return None  # it takes the physical cores
        return max(1, self.usable // processes)

    @property
    def sentence(self) -> str:
        """Empty without a limit."""
        if self.usable == self.bound:
            return ""
        return f"CPUs {self.usable} of {self.bound} (the container's limit is {self.quota:g})"


def look(proc: Path = Path("/proc")) -> Cpus:
    """Look at this process."""
    return Cpus(bound=len(os.sched_getaffinity(0)), quota=quota_of(proc))


def quota_of(proc: Path) -> float | None:
    """The smallest quota from this process's cgroup up to the topmost that is visible, of either version."""
    quotas: list[float] = []
    with contextlib.suppress(OSError, ValueError):
        mounts = list(_mounts((proc / "self/mountinfo").read_text()))
        for version, controllers, path in _memberships((proc / "self/cgroup").read_text()):
            for root, folder in ((root, point) for kind, root, point in mounts if _fits(kind, version, controllers)):
                quotas += _quotas(Path(folder), _below(root, path))
    return min(quotas, default=None)


def _memberships(text: str) -> Iterator[tuple[int, str, str]]:
    """Version, controllers and path of each line of /proc/self/cgroup."""
    for line in text.splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0" and not controllers:
            yield 2, "", path
        elif "cpu" in controllers.split(","):
            yield 1, controllers, path


def _mounts(text: str) -> Iterator[tuple[str, str, str]]:
    """Of each cgroup mount: `cgroup2`, or the controllers of version 1; its root in the hierarchy; its folder."""
    for line in text.splitlines():
        words, _, kinds = (part.split() for part in line.partition(" - "))
        if kinds[:1] == ["cgroup2"]:
            yield "cgroup2", words[3], words[4]
        elif kinds[:1] == ["cgroup"]:
            yield kinds[2], words[3], words[4]


def _fits(kind: str, version: int, controllers: str) -> bool:
    return kind == "cgroup2" if version == 2 else "cpu" in kind.split(",") and "cpu" in controllers.split(",")


def _below(root: str, path: str) -> list[str]:
    """The folders between a mount's root and the process's cgroup; none where that is not below it."""
    names, top = path.strip("/").split("/"), [name for name in root.split("/") if name]
    inside = names[: len(top)] == top and ".." not in names
    return [name for name in names[len(top) :] if name] if inside else []


def _quotas(folder: Path, names: list[str]) -> Iterator[float]:
    """The quotas that are set, from the mount's own folder down."""
    for depth in range(len(names) + 1):
        at = folder.joinpath(*names[:depth])
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = _read(at)
            if quota > 0:
                yield quota / period


def _read(folder: Path) -> tuple[int, int]:
    """Microseconds of CPU in each period. Raises OSError or ValueError (`max`) where there is no limit."""
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota), int(period)
    return int((folder / "cpu.cfs_quota_us").read_text()), int((folder / "cpu.cfs_period_us").read_text())
