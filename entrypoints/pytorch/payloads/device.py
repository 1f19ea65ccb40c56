"""The device that a payload computes on: the one that was asked for, or none at all."""

import os
import resource
from pathlib import Path
from typing import Any

import torch

from .verdict import NotRun, expect

_MOST_THREADS = 4
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def open_device(name: str) -> torch.device:
    """As `find_device`; also sets the threads of torch, see `threads`."""
    torch.set_num_threads(threads())
    return find_device(name)


def find_device(name: str) -> torch.device:
    """The device ``cpu`` or ``cuda``, each rank of a node with a GPU of its own. Raises NotRun with the reason."""
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
    except Exception as error:  # the first that needs memory of the GPU, or the GPU for this process alone
        raise NotRun(f"GPU {local} cannot be used: {_first_sentence(error)}; nvidia-smi shows who uses it") from None
    return device


def _first_sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].split(". ")[0].rstrip(".")


def threads() -> int:
    """Threads for small sizes: what torch took (OMP_NUM_THREADS, cores), at most 4, and only this rank's share.

    A container's limit (--cpus) is no fewer cores to see, so that torch would start a thread for each core of the host
    and they would wait for each other.
    """
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = _CGROUP_LIMIT.read_text().split()
        cores = min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        pass  # no limit ("max"), or an older kernel's layout
    share = cores / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    taken: int = torch.get_num_threads()
    return max(1, min(taken, _MOST_THREADS, int(share)))


def facts(device: torch.device) -> dict[str, Any]:
    """Figures of every payload: what it ran on, and the most memory that it took."""
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
    """The result itself; raises Wrong when it lies elsewhere, or is of another type: a silent move is a failure."""
    same = result.device.type == device.type and device.index in (None, result.device.index)
    expect(same, f"the result is on {result.device}, not on {device}")
    expect(dtype is None or result.dtype == dtype, f"the result is {result.dtype}, not {dtype}")
    return result
