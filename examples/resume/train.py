"""Training that can be stopped: SIGTERM saves a checkpoint, and the next start continues from it.

Exit code 0: all steps are done, and it learned; 1: it did not; 143: stopped, with a checkpoint.
"""

import argparse
import hashlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn

STOPPED = 128 + signal.SIGTERM


class Stop:
    """The handler of SIGTERM: training ends after the present step."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


def main() -> int:
    options, stop = arguments(), Stop()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(2, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path = options.checkpoints / "last.pt"
    first = load(path, model, optimizer, device)
    loss = torch.zeros(())
    for step in range(first, options.steps):
        loss = train_step(model, optimizer, *(values.to(device) for values in batch(step)))
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if stop.requested or (step + 1) % options.every == 0 or step + 1 == options.steps:
            save(path, model, optimizer, step + 1)
        if stop.requested:
            print(f"stopped, and saved at step {step + 1}", flush=True)
            return STOPPED
    code: int = verdict(model, device, options.goal)
    return code


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=Path, required=True, help="a folder that outlives the job")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--goal", type=float, default=0.01, help="the mean square error that is low enough")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Load the checkpoint if there is one, and return the step to continue with."""
    if not path.exists():
        return 0
    saved = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    print(f"goes on at step {saved['step']}", flush=True)
    return int(saved["step"])


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write a new file and rename it, so that the last checkpoint is complete even if the process is killed."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file)
        os.fsync(file.fileno())
    new.replace(path)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return the data of a step, which do not depend on earlier steps, so that a break changes nothing."""
    x = torch.rand(512, 2, generator=torch.Generator().manual_seed(step)) * 4 - 2
    return x, (torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:]))


@torch.inference_mode()
def verdict(model: nn.Module, device: torch.device, goal: float) -> int:
    x, y = (values.to(device) for values in batch(1_000_000))
    error = nn.functional.mse_loss(model(x), y).item()
    weights = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
    print(f"mean square error {error:.5f}, the goal is {goal}; weights {hashlib.sha256(weights).hexdigest()[:16]}")
    return 0 if error <= goal else 1


if __name__ == "__main__":
    sys.exit(main())
