"""The resources of a measurement as a time series: CPU, memory, and the GPU if there is one.

`bench` takes the samples in its own process while its child measures, so they do not disturb the measured loop. If the
kernel kills the child for lack of memory, the series is still complete.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..launch.processes import tree, usage_of
from .nvml import NvmlError, NvmlGpu

MOST = 600  # samples: beyond, every second one is dropped, and the interval doubles
_OF_GPU = ("gpu_percent", "gpu_memory_bytes", "gpu_watts")
_KEYS = ("seconds", "cpu_percent", "memory_bytes", *_OF_GPU)


class Monitor:
    """Samples of a process and its descendants, one in ``every`` seconds; 0: no samples."""

    def __init__(
        self, every: float, clock: Callable[[], float] = time.monotonic, find: Callable[[str], NvmlGpu] = NvmlGpu
    ) -> None:
        self._every, self._clock, self._find = every, clock, find
        self._gpu: NvmlGpu | None = None
        self._samples: list[dict[str, float | None]] = []
        self._cpu: dict[int, float] = {}
        self._start, self._last = clock(), 0.0

    def hear(self, event: Mapping[str, Any]) -> None:
        """Open the GPU whose UUID the child has sent."""
        if self._every and "gpu" in event:
            with contextlib.suppress(NvmlError, OSError, AttributeError):  # a note on the GPU's power has the reason
                self._gpu = self._find(event["gpu"])

    def look(self, pid: int) -> None:
        """Add a sample of the child if it is due."""
        now = self._clock() - self._start
        if not self._every or (self._cpu and now - self._last < self._every):
            return
        used = {each: usage for each in tree(pid) if (usage := usage_of(each))}
        if self._cpu and any(size for _, size in used.values()):  # a process that has ended holds no memory
            value = sum(seconds - self._cpu.get(each, 0.0) for each, (seconds, _) in used.items())
            self._samples.append({
                "seconds": round(now, 2),
                "cpu_percent": round(100 * value / (now - self._last), 1),
                "memory_bytes": sum(size for _, size in used.values()),
                **(self._gpu.usage() if self._gpu else dict.fromkeys(_OF_GPU)),
            })  # fmt: skip
        self._cpu, self._last = {each: seconds for each, (seconds, _) in used.items()}, now
        if len(self._samples) > MOST:
            del self._samples[::2]
            self._every *= 2

    @property
    def series(self) -> dict[str, list[float | None]] | None:
        """A list for each figure, all of the same length; None if there is no sample."""
        if not self._samples:
            return None
        return {key: [sample[key] for sample in self._samples] for key in _KEYS}
