"""Inception-v3 (https://arxiv.org/abs/1512.00567) and Inception-v4 (https://arxiv.org/abs/1602.07261, figures 3 to 9).

Inception-v3 is without the auxiliary classifier, and has 23,834,568 parameters; Inception-v4 has 42,679,816. pytorchcv
publishes both counts (https://github.com/osmr/imgclsmob, pytorch/pytorchcv/models/inceptionv3.py and inceptionv4.py).
The first is also that of torchvision's `inception_v3(aux_logits=False)`, whose published 27,161,264 include the
classifier. The 23,869,094 and 42,743,133 of docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs
include the statistics of the normalisations, 34,526 and 63,317 numbers.

The PyTorch code of that suite (python/pytorch_benchmarks/models/inception.py) has 23,851,784 and 42,711,400 parameters.
Each of its convolutions adds a bias, one number for each of 17,216 and 31,584 channels. The normalisation after it
subtracts the mean and adds a shift, so such a bias has no effect (https://arxiv.org/abs/1502.03167, section 3.2). The
networks here have no such bias.
"""

from torch import nn

from .layers import Parallel, Step, chain, initialise, unit


class Inception3(nn.Sequential):
    """A stem and eleven modules; from (3, 299, 299) to (2048, 8, 8), then to 1000 classes."""

    def __init__(self) -> None:
        super().__init__(
            unit(3, 32, 3, stride=2, padding=0), unit(32, 32, 3, padding=0), unit(32, 64, 3), nn.MaxPool2d(3, stride=2),
            unit(64, 80, 1), unit(80, 192, 3, padding=0), nn.MaxPool2d(3, stride=2),
            _a3(192, 32), _a3(256, 64), _a3(288, 64),
            _reduction(288, [(384, 3, 2)], [(64, 1), (96, 3), (96, 3, 2)]),
            _b3(768, 128), _b3(768, 160), _b3(768, 160), _b3(768, 192),
            _reduction(768, [(192, 1), (320, 3, 2)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)]),
            _c3(1280), _c3(2048),
            nn.AvgPool2d(8), nn.Flatten(), nn.Dropout(), nn.Linear(2048, 1000),
        )  # fmt: skip
        initialise(self)


class Inception4(nn.Sequential):
    """A stem and sixteen modules; from (3, 299, 299) to (1536, 8, 8), then to 1000 classes."""

    def __init__(self) -> None:
        super().__init__(
            unit(3, 32, 3, stride=2, padding=0), unit(32, 32, 3, padding=0), unit(32, 64, 3),
            Parallel(nn.MaxPool2d(3, stride=2), chain(64, (96, 3, 2))),
            Parallel(
                chain(160, (64, 1), (96, 3, 1)),
                chain(160, (64, 1), (64, (7, 1)), (64, (1, 7)), (96, 3, 1)),
            ),
            Parallel(chain(192, (192, 3, 2)), nn.MaxPool2d(3, stride=2)),
            *(_a4() for _ in range(4)),
            _reduction(384, [(384, 3, 2)], [(192, 1), (224, 3), (256, 3, 2)]),
            *(_b4() for _ in range(7)),
            _reduction(1024, [(192, 1), (192, 3, 2)], [(256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2)]),
            *(_c4() for _ in range(3)),
            nn.AvgPool2d(8), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1536, 1000),
        )  # fmt: skip
        initialise(self)


def _reduction(channels: int, *branches: list[Step]) -> Parallel:
    """Halve the size of the images, from 35×35 to 17×17 or from 17×17 to 8×8."""
    return Parallel(*(chain(channels, *steps) for steps in branches), nn.MaxPool2d(3, stride=2))


def _pool(channels: int, width: int, *, with_padding: bool) -> nn.Sequential:
    pool = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=with_padding)
    return nn.Sequential(pool, chain(channels, (width, 1)))


def _fork(channels: int, width: int) -> Parallel:
    """Return 1×3 and 3×1 convolutions as two branches."""
    return Parallel(chain(channels, (width, (1, 3))), chain(channels, (width, (3, 1))))


def _a3(channels: int, pooled: int) -> Parallel:
    """Return Inception-v3's module for 35×35."""
    return Parallel(
        chain(channels, (64, 1)),
        chain(channels, (48, 1), (64, 5)),
        chain(channels, (64, 1), (96, 3), (96, 3)),
        _pool(channels, pooled, with_padding=True),
    )


def _b3(channels: int, width: int) -> Parallel:
    """Return Inception-v3's module for 17×17: 7×7 convolutions as pairs of 1×7 and 7×1."""
    return Parallel(
        chain(channels, (192, 1)),
        chain(channels, (width, 1), (width, (1, 7)), (192, (7, 1))),
        chain(channels, (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))),
        _pool(channels, 192, with_padding=True),
    )


def _c3(channels: int) -> Parallel:
    """Return Inception-v3's module for 8×8."""
    return Parallel(
        chain(channels, (320, 1)),
        nn.Sequential(chain(channels, (384, 1)), _fork(384, 384)),
        nn.Sequential(chain(channels, (448, 1), (384, 3)), _fork(384, 384)),
        _pool(channels, 192, with_padding=True),
    )


def _a4() -> Parallel:
    """Return Inception-v4's module for 35×35."""
    return Parallel(
        chain(384, (96, 1)),
        chain(384, (64, 1), (96, 3)),
        chain(384, (64, 1), (96, 3), (96, 3)),
        _pool(384, 96, with_padding=False),
    )


def _b4() -> Parallel:
    """Return Inception-v4's module for 17×17."""
    return Parallel(
        chain(1024, (384, 1)),
        chain(1024, (192, 1), (224, (1, 7)), (256, (7, 1))),
        chain(1024, (192, 1), (192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7))),
        _pool(1024, 128, with_padding=False),
    )


def _c4() -> Parallel:
    """Return Inception-v4's module for 8×8."""
    return Parallel(
        chain(1536, (256, 1)),
        nn.Sequential(chain(1536, (384, 1)), _fork(384, 256)),
        nn.Sequential(chain(1536, (384, 1), (448, (3, 1)), (512, (1, 3))), _fork(512, 256)),
        _pool(1536, 256, with_padding=False),
    )
