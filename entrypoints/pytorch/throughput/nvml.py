"""Power, clocks and throttling of a GPU, from NVIDIA's management library (NVML) of the driver.

It is called by ctypes, as torch's functions (torch.cuda.power_draw, clock_rate) need a package that images do not have.
NVML's functions and numbers have been the same since 2013. Source: nvml.h.
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1  # nvmlClockType_t
_SAMPLE_SECONDS = 0.1
# nvmlClocksThrottleReasons; bit 0, an idle GPU, is left out.
_REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "temperature",
    0x40: "temperature (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip


class NvmlError(Exception):
    """NVML has returned an error, which is in the message."""


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t: percent of the last sample period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    """nvmlMemory_t: bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@dataclass
class Watch:
    """The samples of one GPU: watts and reasons of throttling during the batches; its clock before and after them."""

    watts: list[float] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    clocks: list[int] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Values that could not be read, such as "power", with the reason."""


@contextlib.contextmanager
def watching(uuid: str) -> Iterator[Watch]:
    """Sample the GPU ten times a second until the block ends; ``uuid`` is in NVML's form: GPU-…."""
    watch = Watch()
    try:
        gpu = NvmlGpu(uuid)
    except (NvmlError, OSError, AttributeError) as error:
        watch.missing["power and clocks"] = str(error)
        yield watch
        return
    gpu.clock(watch)
    end = threading.Event()

    def sample() -> None:
        while not end.wait(_SAMPLE_SECONDS):
            gpu.sample(watch)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield watch
    finally:
        end.set()
        sampler.join()
        gpu.clock(watch)
        if not watch.watts:
            watch.missing.setdefault("power", f"the batches took less than {_SAMPLE_SECONDS} s")


@contextlib.contextmanager
def _note(watch: Watch, what: str) -> Iterator[None]:
    """Record an error in ``watch``, as a GPU or an old driver without one figure may have the others."""
    try:
        yield
    except (NvmlError, AttributeError) as error:
        watch.missing[what] = str(error)


class NvmlGpu:
    """One GPU, by its UUID in place of CUDA's number. Raises NvmlError, or OSError without a driver."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._library = library or ctypes.CDLL(_LIBRARY)
        self._call("nvmlInit_v2")
        self._gpu = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._gpu))

    def sample(self, watch: Watch) -> None:
        """Add the present watts and reasons of throttling."""
        with _note(watch, "power"):
            watch.watts.append(self._read("nvmlDeviceGetPowerUsage", ctypes.c_uint()) / 1000)
        with _note(watch, "reasons to be slow"):
            bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
            watch.reasons |= {reason for bit, reason in _REASONS.items() if bits & bit}

    def usage(self) -> dict[str, float | None]:
        """Return its utilization in percent, the bytes of used memory, and watts; None if unknown."""
        busy, memory = _Utilization(), _Memory()
        return {
            "gpu_percent": self._read_or_note("nvmlDeviceGetUtilizationRates", busy, lambda: busy.gpu),
            "gpu_memory_bytes": self._read_or_note("nvmlDeviceGetMemoryInfo", memory, lambda: memory.used),
            "gpu_watts": self._read_or_note(
                "nvmlDeviceGetPowerUsage", number := ctypes.c_uint(), lambda: number.value / 1000
            ),
        }

    def _read_or_note(self, name: str, result: Any, value: Callable[[], float]) -> float | None:
        try:
            self._call(name, self._gpu, ctypes.byref(result))
        except (NvmlError, AttributeError):
            return None
        return value()

    def clock(self, watch: Watch) -> None:
        """Add the clock of its processors in MHz."""
        with _note(watch, "clocks"):
            watch.clocks.append(self._read("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM_CLOCK))

    def _read(self, name: str, number: Any, *before: Any) -> int:
        self._call(name, self._gpu, *before, ctypes.byref(number))
        return int(number.value)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise NvmlError(f"{name} of {_LIBRARY} ended with {code}")
