"""The GPU's facts in `bench`, with NVIDIA's library replaced: watts, clocks, and the reasons to be slow."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import pytest

from entrypoints.pytorch.throughput.combine import combine
from entrypoints.pytorch.throughput.nvml import NvmlError, NvmlGpu, Watch, watching
from tests.unit.test_bench import look, settings


def test_power_and_clocks_of_all_gpus() -> None:
    first = Watch(watts=[100.0, 300.0], clocks=[1500, 1400], reasons={"power cap"})
    second = Watch(watts=[50.0, 50.0], clocks=[1600, 1300])
    result = combine(settings("--device", "gpu"), [look(watch=first), look(watch=second)])
    assert result["power"] == {"mean_watts": 250.0, "max_watts": 350.0}
    assert result["clocks"] == {"start_mhz": 1500, "end_mhz": 1300, "throttled": ["power cap"]}
    assert result["notes"] == ["The GPU was slowed down: power cap."]
    unknown = combine(settings("--device", "gpu"), [look(watch=Watch(missing={"power and clocks": "no driver"}))])
    assert (unknown["power"], unknown["clocks"]) == (None, None)
    assert unknown["notes"] == ["The GPU's power and clocks could not be read: no driver."]


class FakeNvml:
    """NVIDIA's library on a machine with one GPU that draws 123 W at 1410 MHz, and is at its power cap."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.queries: list[object] = []

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return self.code

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 77
        return 0 if uuid == b"GPU-1" else 6

    def nvmlDeviceGetPowerUsage(self, handle: ctypes.c_void_p, milliwatts: Any) -> int:  # noqa: N802
        milliwatts._obj.value = 123_000
        return 0 if handle.value == 77 else 2

    def nvmlDeviceGetUtilizationRates(self, handle: ctypes.c_void_p, rates: Any) -> int:  # noqa: N802
        rates._obj.gpu, rates._obj.memory = 87, 12
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:  # noqa: N802
        memory._obj.total, memory._obj.free, memory._obj.used = 80 << 30, 77 << 30, 3 << 30
        return 0

    def nvmlDeviceGetClockInfo(self, handle: ctypes.c_void_p, kind: int, megahertz: Any) -> int:  # noqa: N802
        megahertz._obj.value = {1: 1410}[kind]
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: ctypes.c_void_p, bits: Any) -> int:  # noqa: N802
        bits._obj.value = 0x1 | 0x4
        return 0


def test_a_gpu_is_looked_at() -> None:
    watch = Watch()
    gpu = NvmlGpu("GPU-1", FakeNvml())
    gpu.clock(watch)
    gpu.sample(watch)
    gpu.sample(watch)
    assert watch == Watch(watts=[123.0, 123.0], clocks=[1410], reasons={"power cap"})


class NoReasons(FakeNvml):
    """A GPU that does not know why it is slow: 3 is NVML_ERROR_NOT_SUPPORTED."""

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: ctypes.c_void_p, bits: Any) -> int:  # noqa: N802
        return 3


class NoSymbol(FakeNvml):
    """A library without one of the functions."""

    def __getattribute__(self, name: str) -> Any:
        if name == "nvmlDeviceGetCurrentClocksThrottleReasons":
            raise AttributeError(f"undefined symbol: {name}")
        return super().__getattribute__(name)


@pytest.mark.parametrize(("library", "why"), [(NoReasons(), "ended with 3"), (NoSymbol(), "undefined symbol")])
def test_what_a_gpu_does_not_know_leaves_what_it_knows(
    library: FakeNvml, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr("entrypoints.pytorch.throughput.nvml._SAMPLE_SECONDS", 0.001)
    with watching("GPU-1") as watch:
        _until(lambda: len(watch.watts) > 1)
    result = combine(settings("--device", "gpu"), [look(watch=watch)])
    assert result["power"] == {"mean_watts": pytest.approx(123), "max_watts": 123.0}
    assert result["clocks"] == {"start_mhz": 1410, "end_mhz": 1410, "throttled": []}
    (note,) = result["notes"]
    assert note.startswith("The GPU's reasons to be slow could not be read: ")
    assert why in note


def _until(true: Callable[[], bool]) -> None:
    late = time.monotonic() + 10
    while not true():
        assert time.monotonic() < late
        time.sleep(0.001)


def test_a_gpus_draw_before_and_after_the_batches_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeNvml())
    monkeypatch.setattr("entrypoints.pytorch.throughput.nvml._SAMPLE_SECONDS", 60)
    with watching("GPU-1") as watch:
        pass
    assert watch == Watch(clocks=[1410, 1410], missing={"power": "the batches took less than 60 s"})


@pytest.mark.parametrize(("uuid", "code", "text"), [("GPU-2", 0, "HandleByUUID .*6"), ("GPU-1", 9, "nvmlInit_v2 .*9")])
def test_a_library_that_refuses_is_told(uuid: str, code: int, text: str) -> None:
    with pytest.raises(NvmlError, match=text):
        NvmlGpu(uuid, FakeNvml(code))


def test_without_a_driver_the_block_runs_and_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrypoints.pytorch.throughput.nvml._LIBRARY", "libno-such-library.so.1")
    with watching("GPU-1") as watch:
        assert "libno-such-library.so.1" in watch.missing["power and clocks"]
    assert watch.watts == []
