"""The device of a payload: the requested device, or NotRun; never another one."""

import os
import resource
from typing import Any

import torch

from ..launch import cpus
from .verdict import NotRun, expect

_MOST_THREADS = 4


def open_device(name: str) -> torch.device:
    """Find the device, and set the number of torch's threads. Raises NotRun with the reason."""
    torch.set_num_threads(threads())
    return find_device(name)


def find_device(name: str) -> torch.device:
    """Return the device ``cpu`` or ``cuda``, a different GPU for each rank of a node. Raises NotRun with the reason."""
    if name == "cpu":
        return torch.device("cpu")
    if torch.version.cuda is None:
        raise NotRun(f"this torch, {torch.__version__}, is built without CUDA: use a CUDA image")
    try:
        torch.cuda.init()
    except Exception as error:
        raise NotRun(f"no GPU can be used: {_first_sentence(error)}; start the container with --gpus all") from None
    count = torch.cuda.device_count()
    if count == 0:
        raise NotRun("the driver shows no GPU here: start the container with --gpus all, see CUDA_VISIBLE_DEVICES")
    local, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ranks > count:
        raise NotRun(f"{ranks} ranks on this node and {count} GPU(s): each rank needs one, lower NPROC_PER_NODE")
    device = torch.device("cuda", local)
    try:
        torch.cuda.set_device(device)
    except Exception as error:  # this first call fails if the GPU has no free memory, or serves another process alone
        raise NotRun(f"GPU {local} cannot be used: {_first_sentence(error)}; nvidia-smi shows who uses it") from None
    return device


def _first_sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].split(". ")[0].rstrip(".")


def threads() -> int:
    """Return the number of threads for small sizes: torch's default, at most 4 and this rank's share of the CPUs."""
    share = cpus.look().usable // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(max(1, min(torch.get_num_threads(), _MOST_THREADS, share)))


def facts(device: torch.device) -> dict[str, Any]:
    """Return figures of the device, and the peak memory of this process."""
    figures: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "max-rss-mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        figures["gpu"] = about.name
        figures["gpu-capability"] = f"{about.major}.{about.minor}"
        figures["gpu-memory-mb"] = about.total_memory // 2**20
        figures["gpu-peak-mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    else:
        figures["cpu-capability"] = torch.backends.cpu.get_cpu_capability()
    return figures


def expect_on(result: torch.Tensor, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the result. Raises Wrong if it is on another device or of another type."""
    same = result.device.type == device.type and device.index in (None, result.device.index)
    expect(same, f"the result is on {result.device}, not on {device}")
    expect(dtype is None or result.dtype == dtype, f"the result is {result.dtype}, not {dtype}")
    return result
