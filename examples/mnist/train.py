"""A small convolutional net learns digits, on one GPU or on CPUs.

Exit code 0: it recognised at least --goal of the unseen pictures; 1: fewer.
"""

import argparse
import gzip
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> int:
    options = arguments()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, test = data(options.data, options.seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 36, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(options.seed)
    for epoch in range(options.epochs):
        loss = train_epoch(model, optimizer, DataLoader(train, batch_size=64, shuffle=True, generator=order), device)
        print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
    right = accuracy(model, DataLoader(test, batch_size=512), device)
    print(f"{right:.1%} of {len(test)} pictures recognised on {device}; the goal is {options.goal:.1%}")
    return 0 if right >= options.goal else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with MNIST's four files; without it pictures are made up")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--goal", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[Tensor, ...]], device: torch.device
) -> float:
    """Train for one epoch, and return the mean loss."""
    model.train()
    total = torch.zeros((), device=device)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        total += loss.detach()  # stays on the device: reading it would wait for the GPU at every step
    return float(total) / len(loader)


@torch.inference_mode()
def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], device: torch.device) -> float:
    model.eval()
    hits = [(model(x.to(device)).argmax(1) == y.to(device)).float() for x, y in loader]
    return float(torch.cat(hits).mean())


def data(folder: Path | None, seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return the data for training and for the test."""
    if folder:
        return mnist(folder, "train"), mnist(folder, "t10k")
    return made_up(4096, seed + 1), made_up(1024, seed + 2)


def mnist(folder: Path, part: str) -> TensorDataset:
    """Read a part of MNIST from its two files in IDX format, gzipped or not."""
    pictures, digits = idx(folder / f"{part}-images-idx3-ubyte"), idx(folder / f"{part}-labels-idx1-ubyte")
    return TensorDataset(pictures[:, None].float() / 255, digits.long())


def idx(path: Path) -> Tensor:
    packed = path.with_name(path.name + ".gz")
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    head = 4 + 4 * content[3]  # the fourth byte is the number of dimensions; each is four bytes
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, head, 4)]
    return torch.frombuffer(bytearray(content[head:]), dtype=torch.uint8).reshape(shape)


def made_up(number: int, seed: int) -> TensorDataset:
    """Draw pictures of 28 x 28 in ten classes: a pattern each, moved by up to two pixels, with noise."""
    patterns = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(0)).round()
    large = nn.functional.interpolate(patterns, scale_factor=4)
    source = torch.Generator().manual_seed(seed)
    kinds = torch.randint(10, (number,), generator=source)
    moves = torch.randint(-2, 3, (number, 2), generator=source).tolist()
    moved = [torch.roll(large[kind], move, dims=(1, 2)) for kind, move in zip(kinds.tolist(), moves, strict=True)]
    return TensorDataset(torch.stack(moved) + 0.3 * torch.randn(number, 1, 28, 28, generator=source), kinds)


if __name__ == "__main__":
    sys.exit(main())
