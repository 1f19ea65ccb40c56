"""Inception-v3 (https://arxiv.org/abs/1512.00567) without the auxiliary classifier: 23,834,568 parameters.

pytorchcv publishes the count (https://github.com/osmr/imgclsmob, pytorch/pytorchcv/models/inceptionv3.py); it is that
of torchvision's `inception_v3(aux_logits=False)`, whose published 27,161,264 are with the classifier. The 23,869,094
of docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs are with the statistics of the
normalisations, 34,526 numbers.

The PyTorch code of that suite (python/pytorch_benchmarks/models/inception.py) has 17,216 parameters more, 23,851,784:
each of its convolutions adds a bias, one number for each of 17,216 channels. The normalisation behind it subtracts
the mean and adds its own shift, so such a bias has no effect (https://arxiv.org/abs/1502.03167, section 3.2). The
network here has no such bias.
"""

from torch import nn

from .layers import Parallel, chain, initialise, unit


class Inception3(nn.Sequential):
    """A stem and eleven modules; from (3, 299, 299) to (2048, 8, 8), then to 1000 classes."""

    def __init__(self) -> None:
        super().__init__(
            unit(3, 32, 3, stride=2, padding=0), unit(32, 32, 3, padding=0), unit(32, 64, 3), nn.MaxPool2d(3, stride=2),
            unit(64, 80, 1), unit(80, 192, 3, padding=0), nn.MaxPool2d(3, stride=2),
            _a(192, 32), _a(256, 64), _a(288, 64),
            _reduction_a(288),
            _b(768, 128), _b(768, 160), _b(768, 160), _b(768, 192),
            _reduction_b(768),
            _c(1280), _c(2048),
            nn.AvgPool2d(8), nn.Flatten(), nn.Dropout(), nn.Linear(2048, 1000),
        )  # fmt: skip
        initialise(self)


def _a(channels: int, pooled: int) -> Parallel:
    """On 35×35."""
    return Parallel(
        chain(channels, (64, 1)),
        chain(channels, (48, 1), (64, 5)),
        chain(channels, (64, 1), (96, 3), (96, 3)),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), chain(channels, (pooled, 1))),
    )


def _reduction_a(channels: int) -> Parallel:
    """From 35×35 to 17×17."""
    return Parallel(
        chain(channels, (384, 3, 2)),
        chain(channels, (64, 1), (96, 3), (96, 3, 2)),
        nn.MaxPool2d(3, stride=2),
    )


def _b(channels: int, width: int) -> Parallel:
    """On 17×17: 7×7 convolutions as pairs of 1×7 and 7×1."""
    return Parallel(
        chain(channels, (192, 1)),
        chain(channels, (width, 1), (width, (1, 7)), (192, (7, 1))),
        chain(channels, (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), chain(channels, (192, 1))),
    )


def _reduction_b(channels: int) -> Parallel:
    """From 17×17 to 8×8."""
    return Parallel(
        chain(channels, (192, 1), (320, 3, 2)),
        chain(channels, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)),
        nn.MaxPool2d(3, stride=2),
    )


def _c(channels: int) -> Parallel:
    """On 8×8: 3×3 convolutions as 1×3 beside 3×1."""

    def fork() -> Parallel:
        return Parallel(
            chain(384, (384, (1, 3))),
            chain(384, (384, (3, 1))),
        )

    return Parallel(
        chain(channels, (320, 1)),
        nn.Sequential(chain(channels, (384, 1)), fork()),
        nn.Sequential(chain(channels, (448, 1), (384, 3)), fork()),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), chain(channels, (192, 1))),
    )
