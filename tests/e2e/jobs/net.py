"""A user's models, for `bench --model net.py:Net`."""

import torch
from torch import nn


class Net(nn.Sequential):
    """A small convolutional net: a batch of 16 takes some milliseconds."""

    input = (3, 24, 24)
    classes = 10
    title = "A net of one's own"

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, self.classes),
        )  # fmt: skip


class Mean(nn.Module):
    """A model with almost no computation, so that `bench` measures the loading of samples."""

    input = (3, 32, 32)
    classes = 3

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return samples.mean(dim=(2, 3)) * self.weight
