"""Compares the versions of torch, CUDA, cuDNN, NCCL and Python with the expected ones and with torch's build."""

import ctypes
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .device import facts, open_device
from .expected import disagreements
from .verdict import Checks, NotRun, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions


def check(checks: Checks, options: "PayloadOptions") -> None:
    device = open_device(options.device)
    matches: dict[str, str | None] = {"torch": str(torch.__version__), "python": platform.python_version()}
    matches |= dict.fromkeys(("cuda", "cudnn", "nccl"))
    checks.figures["found"] = matches
    with checks("cuda"):
        matches["cuda"] = _cuda()
    with checks("cudnn"):
        matches["cudnn"] = _cudnn()
    with checks("nccl"):
        matches["nccl"] = _nccl()
    with checks("expected"):
        if not options.expected:
            raise NotRun("nothing is expected: give --expect, or an image with labels")
        wrong = disagreements(options.expected, matches)
        expect(not wrong, "; ".join(wrong))
    checks.figures |= facts(device)


def _cuda() -> str | None:
    """Return the CUDA release of torch's build, which must be that of the loaded runtime library.

    Numbers are 1000 * major + 10 * minor (CUDA_VERSION, cuda.h).
    """
    built: str | None = torch.version.cuda
    if built is None:
        expect(not _load("libcudart"), "torch is built without CUDA, but has loaded libcudart")
        return None
    number = ctypes.c_int()
    code = _library("libcudart").cudaRuntimeGetVersion(ctypes.byref(number))
    expect(code == 0, f"cudaRuntimeGetVersion says {code}")
    runtime = f"{number.value // 1000}.{number.value % 1000 // 10}"
    expect(runtime == built, f"torch is built with CUDA {built}, and libcudart is {runtime}")
    return built


def _cudnn() -> str | None:
    """Return cuDNN's release. `torch.backends.cudnn.version()` itself refuses a library older than torch's build."""
    number = torch.backends.cudnn.version() if torch.version.cuda else None
    if number is None:
        expect(torch.version.cuda is None, "torch is built with CUDA, but has no cuDNN")
        return None
    loaded = _library("libcudnn").cudnnGetVersion
    loaded.restype = ctypes.c_size_t
    expect(loaded() == number, f"torch speaks of cuDNN {number}, and libcudnn is {loaded()}")
    return cudnn_release(number)


def cudnn_release(number: int) -> str:
    """Return the release of a number: 10000 * major + 100 * minor + patch since cuDNN 9 (91002 is 9.10.2).

    Before cuDNN 9 it is 1000 * major + 100 * minor + patch (CUDNN_VERSION, cudnn_version.h).
    """
    major = 10000 if number >= 90000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _nccl() -> str | None:
    """Return the NCCL release of torch's build, which must be that of the loaded library.

    Numbers are 10000 * major + 100 * minor + patch (NCCL_VERSION, nccl.h).
    """
    if torch.version.cuda is None or not torch.distributed.is_nccl_available():
        return None
    built = ".".join(map(str, torch.cuda.nccl.version()[:3]))
    number = ctypes.c_int()
    code = _library("libnccl").ncclGetVersion(ctypes.byref(number))
    expect(code == 0, f"ncclGetVersion says {code}")
    loaded = f"{number.value // 10000}.{number.value % 10000 // 100}.{number.value % 100}"
    expect(loaded == built, f"torch is built with NCCL {built}, and libnccl is {loaded}")
    return loaded


def _library(name: str) -> ctypes.CDLL:
    """Open the library that torch has loaded, in place of searching for it."""
    paths = _load(name)
    expect(len(paths) == 1, f"{name} is loaded {len(paths)} times: {', '.join(sorted(paths)) or 'not at all'}")
    return ctypes.CDLL(paths.pop())


def _load(name: str) -> set[str]:
    pattern = re.compile(rf"/{re.escape(name)}(-[0-9a-f]+)?\.so")
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if pattern.search(line)}
