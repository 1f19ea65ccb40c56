"""The machine of a measurement: host, CPU, threads, and exact versions."""

import os
import platform
import resource
import socket
from pathlib import Path
from typing import Any

import torch

from ..launch import cpus
from ..payloads.versions import cudnn_release

_CPUINFO = Path("/proc/cpuinfo")
_SUPPORTED = {"float16": "_is_mkldnn_fp16_supported", "bfloat16": "_is_mkldnn_bf16_supported"}


def host() -> dict[str, Any]:
    """Describe the host; ``cores`` is the number usable by this process, ``threads`` that of torch's operators."""
    return {
        "name": socket.gethostname(),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }


def cpu_name() -> str:
    """Return the CPU's name from the kernel; if it gives none (64-bit Arm), the architecture."""
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()


def too_many_threads(ranks: int) -> str:
    """Return advice if each of this node's ranks has more threads than its share of the CPUs; else empty."""
    usable, threads = cpus.look().usable, torch.get_num_threads()
    share = max(1, usable // ranks)
    if threads <= share:
        return ""
    return (
        f"torch computes with {threads} threads in each process, and {usable} {'CPU' if usable == 1 else 'CPUs'} may "
        f"be used here: OMP_NUM_THREADS={share} is mostly faster."
    )


def slow_type(dtype: str) -> str:
    """Return advice if oneDNN cannot compute in ``dtype`` on this CPU, and torch uses plain loops; else empty."""
    is_supported = getattr(torch.ops.mkldnn, _SUPPORTED.get(dtype, ""), None)
    if is_supported is None or is_supported():
        return ""
    return (
        f"This CPU has no fast instructions for {dtype}, and may take many times as long as in float32: choose "
        "--dtype float32."
    )


def versions() -> dict[str, str | None]:
    """Return the versions of torch and of its build; null for a library that its build lacks."""
    number = torch.backends.cudnn.version() if torch.version.cuda else None
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": cudnn_release(number) if number else None,
        "python": platform.python_version(),
    }


def peak_rss() -> int:
    """Return the peak memory of this process in bytes (ru_maxrss counts KiB), without that of loaders."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
