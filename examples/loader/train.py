"""A loader whose workers pass batches through shared memory, more than the 64 MB that containers have by default.

Exit code 0: every picture came once, and the model learned; else 1, as with a small /dev/shm.
"""

import argparse
import shutil
import sys

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIDE = 224
_PATIENCE = 60  # seconds; without shared memory a batch never arrives


class Pictures(Dataset[tuple[Tensor, Tensor, int]]):
    """Red and blue pictures with noise, generated on access, as pictures would be decoded."""

    def __init__(self, number: int, seed: int) -> None:
        self.number, self.seed = number, seed

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor, int]:
        source = torch.Generator().manual_seed(self.seed + place)  # the same for any worker
        picture = torch.rand(3, SIDE, SIDE, generator=source)
        red = torch.rand((), generator=source) < 0.5
        picture[0 if red else 2] += 0.2
        return picture, red.float(), place


def main() -> int:
    options = arguments()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = options.batch * SIDE * SIDE * 3 * 4 * options.workers * 2  # two batches of each worker wait
    print(f"/dev/shm: {shutil.disk_usage('/dev/shm').total >> 20} MiB; batches that wait: {size >> 20} MiB", flush=True)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1)).to(device)
    numbers, right = train(model, device, options)
    print(f"{len(numbers)} pictures came, {len(set(numbers))} different; {right:.1%} of the last batch were recognised")
    return 0 if sorted(numbers) == list(range(options.pictures)) and right > 0.9 else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def train(model: nn.Module, device: torch.device, options: argparse.Namespace) -> tuple[list[int], float]:
    """Train for one epoch; return the numbers of the pictures, and the accuracy on the last batch."""
    loader = DataLoader(
        Pictures(options.pictures, options.seed), batch_size=options.batch, shuffle=True, num_workers=options.workers,
        pin_memory=device.type == "cuda", generator=torch.Generator().manual_seed(options.seed),
        timeout=_PATIENCE if options.workers else 0,
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    seen_names, right = list[int](), 0.0
    for pictures, red, places in loader:
        expected = red.to(device, non_blocking=True)
        value = model(pictures.to(device, non_blocking=True))[:, 0]
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(value, expected).backward()
        optimizer.step()
        seen_names += places.tolist()
        right = ((value > 0) == (expected > 0.5)).float().mean().item()
    return seen_names, right


if __name__ == "__main__":
    sys.exit(main())
