"""Checks gradients and second derivatives, and training with them, in mixed precision as well."""

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from .compare import expect_close, expect_same, name_of, steps, unit
from .device import expect_on, facts, open_device
from .verdict import Checks, expect

if TYPE_CHECKING:
    from .cli import PayloadOptions

Batch = tuple[torch.Tensor, torch.Tensor]


def check(checks: Checks, options: "PayloadOptions") -> None:
    device = open_device(options.device)
    tests = (_gradients, _double_backward, _gradcheck, _own_function)
    for name, test in zip(("gradients", "double-backward", "gradcheck", "own-function"), tests, strict=True):
        with checks(name):
            test(device)
    with checks("fit"):
        checks.figures["fit-loss"] = _fit(device)
    for dtype in (torch.bfloat16, torch.float16):
        with checks(f"amp-{name_of(dtype)}"):
            checks.figures[f"amp-{name_of(dtype)}-loss"] = _amp(device, dtype)
    with checks("scaler-skips"):
        _scaler_skips(device)
    checks.figures |= facts(device)


def _gradients(device: torch.device) -> None:
    """Compare the gradients of two formulas with their derivatives: sin(x) exp(-x²), and d/dx |Ax|² = 2 AᵀA x."""
    values = steps(64, 1)
    x = torch.tensor(values, device=device, dtype=torch.float64, requires_grad=True)
    (x.sin() * (-x * x).exp()).sum().backward()
    expected_values = [(math.cos(v) - 2 * v * math.sin(v)) * math.exp(-v * v) for v in values]
    expect_close(expect_on(_grad(x), device, torch.float64), expected_values, 16 * unit(torch.float64))

    rows = [steps(8, 20 + number) for number in range(12)]
    a = torch.tensor(rows, device=device)
    y = torch.tensor(values[:8], device=device, requires_grad=True)
    (a @ y).square().sum().backward()
    product = [math.fsum(map(float.__mul__, row, values[:8])) for row in rows]
    expected_values = [2 * math.fsum(row[k] * one for row, one in zip(rows, product, strict=True)) for k in range(8)]
    # Sums of 8 and of 12 terms of at most 8: each addition rounds once.
    expect_close(expect_on(_grad(y), device, torch.float32), expected_values, 2 * 20 * 12 * 8 * unit(torch.float32))


def _grad(tensor: torch.Tensor) -> torch.Tensor:
    expect(tensor.grad is not None, "backward left no gradient")
    assert tensor.grad is not None
    return tensor.grad


def _double_backward(device: torch.device) -> None:
    """Compare with the derivatives of x⁴: 4x³, 12x² and 24x."""
    values = steps(32, 2)
    x = torch.tensor(values, device=device, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad((x**4).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    for value, expected_values in (
        (first, [4 * v**3 for v in values]), (second, [12 * v**2 for v in values]), (third, [24 * v for v in values]),
    ):  # fmt: skip
        expect_close(expect_on(value, device, torch.float64), expected_values, 64 * unit(torch.float64))


def _gradcheck(device: torch.device) -> None:
    """Compare the gradients of convolution, normalisation, pooling and softmax with finite differences."""
    torch.manual_seed(3)
    image = torch.randn(1, 2, 5, 5, dtype=torch.float64, device=device, requires_grad=True)
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, device=device, requires_grad=True)

    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.conv2d(x, w, padding=1)
        hidden = nn.functional.group_norm(hidden, 1)
        hidden = nn.functional.avg_pool2d(hidden.tanh(), 2)
        return hidden.flatten(1).softmax(1)

    right = torch.autograd.gradcheck(layers, (image, weight), raise_exception=False)
    expect(right, "gradients are not the function's differences")
    small = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    function = lambda x: (x @ x.T).sigmoid().logsumexp(1)  # noqa: E731
    right = torch.autograd.gradgradcheck(function, (small,), raise_exception=False)
    expect(right, "second derivatives are not the differences of the first")


class _WrongGradient(torch.autograd.Function):
    """A function with a custom backward that does not fit its forward: the result shows that torch calls it."""

    @staticmethod
    def forward(ctx: "torch.autograd.function.FunctionCtx", x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx: "torch.autograd.function.FunctionCtx", *grads: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return 2 * grads[0] * x


def _own_function(device: torch.device) -> None:
    values = steps(16, 4)
    x = torch.tensor(values, device=device, requires_grad=True)
    _WrongGradient.apply(x).sum().backward()
    expect_close(expect_on(_grad(x), device), [2 * value for value in values], 0.0)


def data(device: torch.device) -> Batch:
    """Samples of a smooth function."""
    source = torch.Generator().manual_seed(5)
    x = torch.rand(256, 2, generator=source) * 2 - 1
    y = torch.sin(3 * x[:, :1]) * x[:, 1:]
    return x.to(device), y.to(device)


def network(device: torch.device) -> nn.Module:
    torch.manual_seed(6)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)


def _fit(device: torch.device) -> list[float]:
    """Train until the loss has fallen to a tenth (measured: to a fiftieth)."""
    model, (x, y) = network(device), data(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(expect_on(loss.detach(), device).item())
    expect(losses[-1] < losses[0] / 10, f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}, not to a tenth")
    return [losses[0], losses[-1]]


def _amp(device: torch.device, dtype: torch.dtype) -> list[float]:
    """Train in mixed precision: products are of ``dtype``, weights stay float32, and the loss falls to a quarter."""
    model, (x, y) = network(device), data(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    losses = []
    for _ in range(120):
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype):
            result = expect_on(model(x), device, dtype)
            loss = nn.functional.mse_loss(result.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    kinds = {parameter.dtype for parameter in model.parameters()}
    expect(kinds == {torch.float32}, f"weights became {kinds}")
    expect(losses[-1] < losses[0] / 4, f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}, not to a quarter")
    return [losses[0], losses[-1]]


def _scaler_skips(device: torch.device) -> None:
    """Check that an infinite gradient changes no weight and halves the scale."""
    model, (x, y) = network(device), data(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss * math.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    for old, parameter in zip(before, model.parameters(), strict=True):
        expect_same(parameter.detach(), old, "weights after a step with an infinite gradient")
    expect(scaler.get_scale() == 512.0, f"the scale went from 1024 to {scaler.get_scale()}, not to 512")
    optimizer.zero_grad()
    scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
    scaler.step(optimizer)
    expect(
        any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)),
        "a step with a finite gradient changed nothing",
    )
