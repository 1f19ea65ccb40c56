"""Compares compiled code of torch.compile with eager mode, forward and backward."""

import importlib
import os
import shutil
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from .compare import expect_close
from .device import expect_on, facts, open_device
from .verdict import Checks, NotRun, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_CXX = ("g++", "c++", "clang++", "clang")
_CC = ("gcc", "cc", "clang")
_REMEDY = "an image has it unless its matrix says `compiler: false`"


def check(checks: Checks, options: "PayloadOptions") -> None:
    _find_compiler("CXX", _CXX, "no C++ compiler: torch.compile needs one at run time")
    _find_compiler("CC", _CC, "no C compiler: Triton needs one at run time")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        raise NotRun(f"{header} is missing: torch.compile and Triton need Python's headers at run time; {_REMEDY}")
    device = open_device(options.device)
    with tempfile.TemporaryDirectory(prefix="smoke-compile-") as folder:
        # Cached code would hide that nothing can be built. One process builds fast enough. The process ends with the
        # payload, so the variables are not restored.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        with checks("elementwise"):
            _compare(device, _formula, [torch.linspace(-2, 2, 1000, device=device)])
        with checks("model"):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(device)
            _compare(device, model, [torch.randn(8, 16, device=device), *model.parameters()])
        with checks("built"):
            kinds = {".so"} if device.type == "cpu" else {".cubin", ".ptx"}
            built = sum(path.suffix in kinds for path in Path(folder).rglob("*"))
            expect(built > 0, "nothing was built: the results came from eager mode or from an older cache")
            checks.figures["built"] = built
            graphs = importlib.import_module("torch._dynamo.utils").counters["stats"]["unique_graphs"]
            expect(graphs == 2, f"{graphs} graphs were compiled for two functions")
        if device.type == "cpu":
            with checks("vectors"):
                _expect_vectors(checks)
    checks.figures |= facts(device)


def _find_compiler(variable: str, names: tuple[str, ...], reason: str) -> None:
    choice = os.environ.get(variable)
    if not any(shutil.which(name) for name in ([choice] if choice else names)):
        raise NotRun(f"{reason} ({variable} is {choice})" if choice else f"{reason}; {_REMEDY}")


def _expect_vectors(checks: Checks) -> None:
    """Check that generated code uses the vectors of eager mode: if a header is missing, Inductor silently uses none."""
    capability = torch.backends.cpu.get_cpu_capability()
    with suppress(ImportError):  # torch before 2.4 has another name for it
        picked = str(importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa())
        checks.figures["vectors"] = picked
        wide = capability in ("AVX2", "AVX512")
        expect(not wide or picked.startswith("avx"), f"Inductor uses no vectors on a CPU with {capability}")


def _formula(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * torch.exp(-x * x) + torch.where(x > 0, x, 0.1 * x)


def _compare(device: torch.device, function: object, inputs: list[torch.Tensor]) -> None:
    """Compare results and gradients within a few float32 roundings, as fused code rounds in another order.

    The first of ``inputs`` is the function's argument, the others are its parameters.
    """
    assert callable(function)
    compiled = torch.compile(function, fullgraph=True)
    results = []
    for candidate in (function, compiled):
        leaf = inputs[0].detach().clone().requires_grad_()
        leaves = [leaf, *inputs[1:]]
        out = expect_on(candidate(leaf), device, torch.float32)
        gradients = torch.autograd.grad(out.square().sum(), leaves)
        results.append([out.detach(), *gradients])
    for eager, built in zip(*results, strict=True):
        expected = eager.double().reshape(-1).tolist()
        largest = max(1.0, *map(abs, expected))
        expect_close(expect_on(built, device, torch.float32), expected, 1e-5 * largest)
