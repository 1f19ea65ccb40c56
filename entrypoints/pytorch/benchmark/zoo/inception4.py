"""Inception-v4 (https://arxiv.org/abs/1602.07261, figures 3 to 9): 42,679,816 parameters.

pytorchcv publishes the count (https://github.com/osmr/imgclsmob, pytorch/pytorchcv/models/inceptionv4.py). The
42,743,133 of docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs are with the statistics of the
normalisations, 63,317 numbers.

The PyTorch code of that suite (python/pytorch_benchmarks/models/inception.py) has 31,584 parameters more, 42,711,400:
each of its convolutions adds a bias, one number for each of 31,584 channels. The normalisation behind it subtracts
the mean and adds its own shift, so such a bias has no effect (https://arxiv.org/abs/1502.03167, section 3.2). The
network here has no such bias.
"""

from torch import nn

from .layers import Parallel, chain, initialise, unit


class Inception4(nn.Sequential):
    """A stem and sixteen modules; from (3, 299, 299) to (1536, 8, 8), then to 1000 classes."""

    def __init__(self) -> None:
        super().__init__(
            *_stem(),
            *(_a() for _ in range(4)), _reduction_a(),
            *(_b() for _ in range(7)), _reduction_b(),
            *(_c() for _ in range(3)),
            nn.AvgPool2d(8), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1536, 1000),
        )  # fmt: skip
        initialise(self)


def _stem() -> tuple[nn.Module, ...]:
    """To (384, 35, 35)."""
    return (
        unit(3, 32, 3, stride=2, padding=0), unit(32, 32, 3, padding=0), unit(32, 64, 3),
        Parallel(nn.MaxPool2d(3, stride=2), chain(64, (96, 3, 2)),),
        Parallel(
            chain(160, (64, 1), (96, 3, 1)),
            chain(160, (64, 1), (64, (7, 1)), (64, (1, 7)), (96, 3, 1)),),
        Parallel(chain(192, (192, 3, 2)), nn.MaxPool2d(3, stride=2),),
    )  # fmt: skip


def _pooled(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), chain(channels, (width, 1)))


def _a() -> Parallel:
    """On 35×35."""
    return Parallel(
        chain(384, (96, 1)),
        chain(384, (64, 1), (96, 3)),
        chain(384, (64, 1), (96, 3), (96, 3)),
        _pooled(384, 96),
    )


def _reduction_a() -> Parallel:
    """From 35×35 to 17×17."""
    return Parallel(
        chain(384, (384, 3, 2)),
        chain(384, (192, 1), (224, 3), (256, 3, 2)),
        nn.MaxPool2d(3, stride=2),
    )


def _b() -> Parallel:
    """On 17×17."""
    return Parallel(
        chain(1024, (384, 1)),
        chain(1024, (192, 1), (224, (1, 7)), (256, (7, 1))),
        chain(1024, (192, 1), (192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7))),
        _pooled(1024, 128),
    )


def _reduction_b() -> Parallel:
    """From 17×17 to 8×8."""
    return Parallel(
        chain(1024, (192, 1), (192, 3, 2)),
        chain(1024, (256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2)),
        nn.MaxPool2d(3, stride=2),
    )


def _c() -> Parallel:
    """On 8×8."""

    def fork(channels: int) -> Parallel:
        return Parallel(
            chain(channels, (256, (1, 3))),
            chain(channels, (256, (3, 1))),
        )

    return Parallel(
        chain(1536, (256, 1)),
        nn.Sequential(chain(1536, (384, 1)), fork(384)),
        nn.Sequential(chain(1536, (384, 1), (448, (3, 1)), (512, (1, 3))), fork(512)),
        _pooled(1536, 256),
    )
