"""Saves a trained model as TorchScript, by torch.export and as ONNX, loads each file again, and compares it.

Exit code 0: the loaded models give the same results, also for a batch of another size; else 1.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

Answer = Callable[[Tensor], Tensor]
TOLERANCE = 1e-4


def main() -> int:
    options = arguments()
    model = trained(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    unseen = points(7, seed=1)
    with torch.inference_mode():
        expected = model(unseen)
        apart = {
            name: (FORMATS[name](model, options.out)(unseen) - expected).abs().max().item() for name in options.formats
        }
    for name, difference in apart.items():
        print(f"{name}: differs by {difference:.1e}")
    return 0 if all(difference <= TOLERANCE for difference in apart.values()) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("/tmp/models"))
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=["torchscript", "export"])
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def trained(seed: int) -> nn.Module:
    """Train a net to a curve, on the CPU, as the export should not depend on a GPU."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(300):
        x = points(128, seed=100 + step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), torch.sin(x))
        loss.backward()
        optimizer.step()
    print(f"trained: loss {loss.item():.4f}", flush=True)
    return model.eval()


def points(number: int, seed: int) -> Tensor:
    return torch.rand(number, 1, generator=torch.Generator().manual_seed(seed)) * 6 - 3


def torchscript(model: nn.Module, folder: Path) -> Answer:
    path = folder / "model.ts"
    torch.jit.script(model).save(path)
    loaded: Answer = torch.jit.load(path)
    return loaded


def export(model: nn.Module, folder: Path) -> Answer:
    path = folder / "model.pt2"
    batch = torch.export.Dim("batch", min=1)
    torch.export.save(torch.export.export(model, (points(4, seed=0),), dynamic_shapes=({0: batch},)), path)
    loaded: Answer = torch.export.load(path).module()
    return loaded


def onnx(model: nn.Module, folder: Path) -> Answer:
    """Save as ONNX, and run it by ONNX Runtime, without torch."""
    import onnxruntime  # noqa: PLC0415 - only the image of the Dockerfile has it

    path = folder / "model.onnx"
    batch = torch.export.Dim("batch", min=1)
    torch.onnx.export(
        model, (points(4, seed=0),), path, dynamo=True, verbose=False, dynamic_shapes=({0: batch},), input_names=["x"]
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


FORMATS: dict[str, Callable[[nn.Module, Path], Answer]] = {"torchscript": torchscript, "export": export, "onnx": onnx}


if __name__ == "__main__":
    sys.exit(main())
