"""Fully connected networks (acoustic_model, deep_mnist and sensor_net), and one large matrix product (matmul).

Layers, samples and classes of the networks are those of the same names in
https://github.com/HewlettPackard/dlcookbook-dlbs, folder python/pytorch_benchmarks/models. Its table
(docs/models/models.md) publishes 34,678,784 parameters for acoustic_model and 11,972,510 for deep_mnist, and none for
sensor_net, whose layers have 2,919,440 in total. The weights of matmul are 4096² = 16,777,216.
"""

from itertools import pairwise

import torch
from torch import nn

from .layers import initialise


class Dense(nn.Sequential):
    """Dense layers from the first size to the last, with ReLU between them."""

    def __init__(self, *, sizes: tuple[int, ...]) -> None:
        layers: list[nn.Module] = []
        for size, following in pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU(inplace=True)]
        super().__init__(*layers[:-1])
        initialise(self)


class MatMul(nn.Module):
    """The product of a square matrix (a sample) with the weights: 2 · side³ operations, the peak of a device.

    The output is the rows' mean, from which a loss can be computed: side² additions.
    """

    def __init__(self, *, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(side, side).normal_(std=side**-0.5))

    def forward(self, matrices: torch.Tensor) -> torch.Tensor:
        return (matrices @ self.weight).mean(dim=1)
