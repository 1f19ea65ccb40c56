"""The output of `bench`: the lines that other benchmark suites read, and a JSON object."""

import json
import os
import platform
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from .flags import BenchSettings

VERSION = 1
_MILLISECONDS = 1000.0


def blank(settings: BenchSettings) -> dict[str, Any]:
    """Return the JSON object before the measurement; unknown values are null or empty."""
    return {
        "bench": VERSION,
        "status": "failure",
        "reason": "",
        "out_of_memory": False,
        "model": settings.model,
        "model_title": "",
        "parameters": None,
        "input": [],
        "classes": None,
        **_settings_of(settings),
        "times": [],
        "data_times": [],
        "warmup_times": [],
        "time": None,
        "throughput": None,
        "memory": {"peak_rss_bytes": None, "peak_gpu_bytes": None},
        "power": None,
        "clocks": None,
        "monitor": None,
        "notes": notes_on(settings),
        "versions": {"torch": None, "cuda": None, "cudnn": None, "python": platform.python_version()},
        "image": os.environ.get("TORCHBAKE_ID", ""),
        "host": {"name": socket.gethostname(), "cpu": None, "cores": None, "threads": None},
    }


def _settings_of(settings: BenchSettings) -> dict[str, Any]:
    """Return the settings of the measurement, from the flags and the job."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return {
        "phase": settings.phase,
        "batch_size": settings.batch_size,
        "effective_batch": settings.batch_size * world,
        "dtype": settings.dtype,
        "device": settings.device,
        "devices": [],
        "world": world,
        "nodes": max(1, world // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))),
        "num_batches": settings.num_batches,
        "num_warmup_batches": settings.num_warmup_batches,
        "data": {
            "backend": settings.backend,
            "loader_threads": settings.num_loader_threads,
            "shuffle": settings.data_shuffle,
            "bound": False,
        },
    }


def notes_on(settings: BenchSettings) -> list[str]:
    """Return a sentence for each given flag without effect: no flag is ignored silently."""
    arguments, world = settings.explicit, int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = settings.device == "gpu"
    notes = {
        "--data has no effect with --data_dir: samples are read from there.": (
            "data" in arguments and bool(settings.data_dir)
        ),
        "--data synthetic is synthetic/device here, without a copy from host memory; synthetic/pinned has one.": (
            on_gpu and "data" in arguments and settings.data == "synthetic" and not settings.data_dir
        ),
        f"--data {settings.data} has no effect on the CPU: its memory is the host's.": (
            not on_gpu and settings.in_host_memory
        ),
        "--dist_backend has no effect: there is one rank.": "dist_backend" in arguments and world == 1,
        "--dist_backend nccl needs GPUs: the ranks on the CPU use gloo.": (
            settings.dist_backend == "nccl" and not on_gpu and world > 1
        ),
        "--local_rank has no effect on the CPU.": "local_rank" in arguments and not on_gpu,
        "--data_loader_only measures no model: --forward_only chooses how images are cropped.": (
            settings.data_loader_only and settings.forward_only
        ),
        "--cudnn_fastest true has no effect: torch has no such mode, and --cudnn_benchmark true picks the fastest "
        "algorithm already.": settings.cudnn_fastest,
        "--cudnn_benchmark has no effect on the CPU.": "cudnn_benchmark" in arguments and settings.device == "cpu",
        f"On the CPU --num_gpus {settings.num_gpus} is the number of processes, which share its cores.": (
            settings.device == "cpu" and settings.num_gpus > 1
        ),
        "--data_shuffle has no effect without --data_dir: every batch is the same synthetic one.": (
            settings.data_shuffle and not settings.data_dir
        ),
        "--num_loader_threads has no effect without --data_dir: synthetic samples are not loaded.": (
            "num_loader_threads" in arguments and not settings.data_dir
        ),
        "--data_backend has no effect without --data_dir: samples are synthetic.": (
            "data_backend" in arguments and not settings.data_dir
        ),
    }
    return [sentence for sentence, applies in notes.items() if applies]


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of stdout, the JSON object last; times before it are in milliseconds."""
    yield _line("exp.model_title", result["model_title"])
    yield _line("exp.phase", result["phase"])
    yield _line("exp.replica_batch", result["batch_size"])
    yield _line("exp.effective_batch", result["effective_batch"])
    yield _line("exp.dtype", result["dtype"])
    yield _line("results.status", result["status"])
    if result["status"] == "success":
        yield _line("results.time", result["time"]["mean"] * _MILLISECONDS)
        yield _line("results.time_std", result["time"]["std"] * _MILLISECONDS)
        yield _line("results.throughput", result["throughput"])
        yield _line("results.time_data", [seconds * _MILLISECONDS for seconds in result["times"]])
    yield json.dumps(result, allow_nan=False)


def _line(name: str, value: object) -> str:
    return f"__{name}__= {json.dumps(value, allow_nan=False)}"
