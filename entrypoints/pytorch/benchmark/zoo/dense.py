"""Fully connected networks: acoustic_model, deep_mnist and sensor_net.

Layers, samples and classes are those of the same names in https://github.com/HewlettPackard/dlcookbook-dlbs, folder
python/pytorch_benchmarks/models. Its table (docs/models/models.md) publishes 34,678,784 parameters for acoustic_model
and 11,972,510 for deep_mnist; it has none for sensor_net, whose layers sum up to 2,919,440.
"""

from itertools import pairwise

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
