"""Saves and loads models as TorchScript, torch.export, ONNX and checkpoints, and compares the results."""

import importlib.util
import io
import pickle
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .compare import expect_close, expect_same
from .device import expect_on, facts, open_device
from .verdict import Checks, NotRun, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

_ONNX = ("onnx", "onnxscript")


def check(checks: Checks, options: "PayloadOptions") -> None:
    device = open_device(options.device)
    model, x = _model(device), torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(2)).to(device)
    with checks("script"):
        _same_after(torch.jit.script(_Counter().to(device)), _Counter().to(device), x)
    with checks("trace"):
        _same_after(torch.jit.trace(model, x), model, x)
    with checks("export"):
        _export(model, x)
    with checks("onnx"):
        _onnx(model, x)
    with checks("checkpoint"):
        _checkpoint(device)
    with checks("weights-only"):
        _weights_only()
    checks.figures |= facts(device)


class _Counter(nn.Module):
    """A branch and a loop that depend on data: a trace would freeze them, a script must keep them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for row in x:
            if float(row.sum()) > 0:
                total = total + row
        return total


def _model(device: torch.device) -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    return layers.to(device).eval()


def _saved(save: Callable[[Any, Any], Any], value: Any) -> io.BytesIO:
    """Save a value in memory, to be read from the start."""
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return file


def _same_after(scripted: Any, module: nn.Module, x: torch.Tensor) -> None:
    """Compare a saved and loaded script with its module, also on inputs that a trace has not seen."""
    loaded: Callable[[torch.Tensor], torch.Tensor] = torch.jit.load(_saved(torch.jit.save, scripted), x.device)
    with torch.no_grad():
        for values in (x, -x):
            _expect_near(loaded(values), module(values), x.device)


def _export(model: nn.Module, x: torch.Tensor) -> None:
    """Compare an exported program for batches of any size with its model."""
    batch = torch.export.Dim("batch", min=2, max=16)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    loaded = torch.export.load(_saved(torch.export.save, program)).module()
    larger = torch.cat([x, -x])
    with torch.no_grad():
        _expect_near(loaded(larger), model(larger), x.device)


def _onnx(model: nn.Module, x: torch.Tensor) -> None:
    missing = [name for name in _ONNX if importlib.util.find_spec(name) is None]
    if missing:
        raise NotRun(f"not installed: {', '.join(missing)}")
    import onnx  # noqa: PLC0415
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    program = torch.onnx.export(model, (x,), dynamo=True)
    expect(program is not None, "torch.onnx.export returned nothing")
    proto = program.model_proto  # type: ignore[union-attr]
    onnx.checker.check_model(proto)
    (name,) = (value.name for value in proto.graph.input)
    (result,) = ReferenceEvaluator(proto).run(None, {name: x.cpu().numpy()})
    with torch.no_grad():
        expected = model(x).double().reshape(-1).tolist()
    expect_close(result.reshape(-1).tolist(), expected, 1e-4)


def _expect_near(actual: torch.Tensor, eager: torch.Tensor, device: torch.device) -> None:
    """Compare within some float32 roundings of numbers about 1, as the operations may be fused."""
    expect(actual.shape == eager.shape, f"the shape is {tuple(actual.shape)}, eager's {tuple(eager.shape)}")
    expect_close(expect_on(actual, device, torch.float32), eager.double().reshape(-1).tolist(), 1e-4)


def _checkpoint(device: torch.device) -> None:
    """Check that training from a checkpoint takes the same steps as training without a break."""
    model, optimizer = _training(device)
    _steps(model, optimizer, device, 3)
    file = _saved(torch.save, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3})
    _steps(model, optimizer, device, 3)
    saved = torch.load(file, map_location=device, weights_only=True)
    resumed, resumed_optimizer = _training(device, seed=9)
    resumed.load_state_dict(saved["model"])
    resumed_optimizer.load_state_dict(saved["optimizer"])
    _steps(resumed, resumed_optimizer, device, saved["step"])
    for (name, expected), value in zip(model.state_dict().items(), resumed.state_dict().values(), strict=True):
        expect_same(expect_on(value, device), expected, f"{name} after a checkpoint")


def _training(device: torch.device, seed: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, count: int) -> None:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(4)).to(device)
    for _ in range(count):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def _weights_only() -> None:
    """Check that a file with other objects than weights is refused: to load them would run their code."""
    file = _saved(torch.save, {"weights": torch.ones(1), "path": PurePosixPath("/tmp")})
    try:
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError:
        return
    expect(False, "torch.load(weights_only=True) made an object that is not weights")
