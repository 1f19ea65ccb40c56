"""The zoo of the benchmark, in an image: `count` its parameters without memory, or run `batches` of models of it.

Prints one JSON object a model.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

sys.path.insert(0, "/opt/torchbake")
from throughput.zoo import ModelEntry, ModelError, batch, load, loss, names  # type: ignore[import-not-found]

BATCH, BATCHES = 2, 2
# Ours by the name that torchvision has for the same network; all others of the same name are the same.
VISION = {"alexnet_owt": "alexnet", "googlenet_bn": "googlenet", "inception3": "inception_v3"}
DIFFERENT = {"alexnet", "googlenet"}  # the networks of their papers, which torchvision has not


def count(names: list[str]) -> Iterator[dict[str, Any]]:
    """On the device `meta`, where numbers have a shape and no value."""
    for entry in map(load, names):
        with torch.device("meta"):
            model = entry.make()
        inputs, targets = batch(entry, BATCH, "meta", torch.float32)
        outputs = model(inputs)
        loss(entry)(outputs, targets).backward()
        yield {
            "name": entry.name,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "with_statistics": sum(numbers.numel() for numbers in model.state_dict().values()),
            "without_gradient": [name for name, parameter in model.named_parameters() if parameter.grad is None],
            "output": list(outputs.shape),
            "smaller": refusal(model, inputs[..., :-1]),
            "vision": shapes_of_vision(entry.name),
            "shapes": shapes(model),
        }


def refusal(model: torch.nn.Module, inputs: torch.Tensor) -> str:
    with suppress(RuntimeError):
        try:
            model(inputs)
        except ModelError as error:
            return str(error)
    return ""


def shapes(model: torch.nn.Module) -> list[list[int]]:
    return sorted(list(parameter.shape) for parameter in model.parameters())


def shapes_of_vision(name: str) -> list[list[int]] | None:
    """Return the parameter shapes of torchvision's model without auxiliary classifiers.

    Return None if torchvision is not installed, has no such model, or has a different one of that name.
    """
    try:
        from torchvision import models  # type: ignore[import-not-found]  # noqa: PLC0415 - not in all images
    except ImportError:
        return None
    title = VISION.get(name, name)
    if name in DIFFERENT or title not in models.list_models():
        return None
    without = {"aux_logits": False, "init_weights": False} if title in ("googlenet", "inception_v3") else {}
    with torch.device("meta"):
        return shapes(models.get_model(title, weights=None, **without))


def batches(names: list[str], dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    """Yield each model's results. It runs in a child process, so ``rss_mb`` is the peak memory of that model alone."""
    for name in names:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(writing, json.dumps(run(load(name), dtype)).encode())
            except Exception as error:
                os.write(writing, json.dumps({"failure": f"{type(error).__name__}: {error}"[:500]}).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            output = pipe.read()
        _, status, usage = os.wait4(child, 0)
        end = json.loads(output) if output else {"failure": f"the process ended with {status}"}
        yield {"name": name, **end, "rss_mb": usage.ru_maxrss // 1024}


def run(entry: ModelEntry, dtype: torch.dtype) -> dict[str, Any]:
    """Seconds of each batch in both phases; the losses, and whether all gradients are finite."""
    torch.manual_seed(1)
    start = time.perf_counter()
    model = entry.make().to(dtype)
    product = time.perf_counter() - start
    inputs, targets = batch(entry, BATCH, "cpu", dtype)
    losses, times = [], {"training": [], "inference": []}  # type: ignore[var-annotated]
    for _ in range(BATCHES):
        start = time.perf_counter()
        model.zero_grad()
        value = loss(entry)(model(inputs), targets)
        value.backward()
        times["training"].append(round(time.perf_counter() - start, 3))
        losses.append(value.item())
    model.eval()
    with torch.inference_mode():
        for _ in range(BATCHES):
            start = time.perf_counter()
            outputs = model(inputs)
            times["inference"].append(round(time.perf_counter() - start, 3))
    gradients = [parameter.grad for parameter in model.parameters()]
    whole = all(gradient is not None and gradient.isfinite().all().item() for gradient in gradients)
    finite = bool(outputs.isfinite().all())
    return {**times, "made": round(product, 2), "losses": losses, "gradients": whole, "finite": finite}


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    dtype = getattr(torch, os.environ.get("DTYPE", "float32"))
    chosen = words or list(names())
    for line in count(chosen) if what == "count" else batches(chosen, dtype):
        print(json.dumps(line), flush=True)
