"""A custom model: `bench` reads the shape of a sample and the number of classes from the class."""

import torch
from torch import nn


class Mlp(nn.Module):
    """Large matrix products, which use all available cores."""

    input = (2048,)
    classes = 1000

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1000))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(samples)
        return out
