"""The resource monitor of `bench`: CPU, memory and GPU of a process and its children over time."""

import os
import time

import pytest

from entrypoints.pytorch.launch.processes import tree, usage_of
from entrypoints.pytorch.throughput import monitor
from entrypoints.pytorch.throughput.monitor import Monitor
from entrypoints.pytorch.throughput.nvml import NvmlError, NvmlGpu
from tests.unit.test_bench_gpu import FakeNvml


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_this_process_is_seen() -> None:
    watcher = Monitor(0.2)
    watcher.look(os.getpid())
    holder, end = bytearray(64 << 20), time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    watcher.look(os.getpid())
    assert watcher.series is not None
    ((memory,), (busy,)) = watcher.series["memory_bytes"], watcher.series["cpu_percent"]
    assert memory is not None
    assert memory > len(holder)
    assert busy
    assert watcher.series["gpu_percent"] == [None]
    assert tree(os.getpid())[0] == os.getpid()
    assert usage_of(2**22 + 1) is None  # beyond the kernel's largest pid


def play(monkeypatch: pytest.MonkeyPatch, every: float, looks: int) -> Monitor:
    """A process that takes half a core and 5 bytes, looked at each second."""
    clock = Clock()
    watcher = Monitor(every, clock, lambda uuid: NvmlGpu(uuid, FakeNvml()))
    monkeypatch.setattr(monitor, "tree", lambda pid: [pid])
    monkeypatch.setattr(monitor, "usage_of", lambda pid: (clock.now / 2, 5))
    for clock.now in range(looks):
        if clock.now == 2:
            watcher.hear({"gpu": "GPU-1"})
        watcher.look(1)
    return watcher


def test_a_sample_is_what_was_taken_since_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(monkeypatch, 1, 4).series == {
        "seconds": [1, 2, 3], "cpu_percent": [50.0] * 3, "memory_bytes": [5] * 3,
        "gpu_percent": [None, 87, 87], "gpu_memory_bytes": [None, 3 << 30, 3 << 30], "gpu_watts": [None, 123.0, 123.0],
    }  # fmt: skip
    assert play(monkeypatch, 2, 7).series["seconds"] == [2, 4, 6]  # type: ignore[index]
    assert play(monkeypatch, 0, 7).series is None


def test_a_long_run_has_no_longer_series(monkeypatch: pytest.MonkeyPatch) -> None:
    series = play(monkeypatch, 1, 20 * monitor.MOST).series
    assert series is not None
    times = series["seconds"]
    assert monitor.MOST // 2 <= len(times) <= monitor.MOST
    assert times[-1] > 19 * monitor.MOST  # type: ignore[operator]
    assert series["cpu_percent"][-1] == 50.0


def test_a_machine_without_the_library_has_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(uuid: str) -> NvmlGpu:
        raise NvmlError(uuid)

    watcher = Monitor(1, Clock(), missing)
    watcher.hear({"gpu": "GPU-1"})
    for _ in range(2):
        watcher._clock.now += 1  # type: ignore[attr-defined]
        watcher.look(1)
    assert watcher.series is not None
    assert watcher.series["gpu_watts"] == [None]
