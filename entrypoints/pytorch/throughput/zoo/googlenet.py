"""GoogLeNet (https://arxiv.org/abs/1409.4842, table 1) without the auxiliary classifiers, in two forms.

googlenet is the paper's network with biases, local response normalisation and 5×5 convolutions. It has 6,998,552
parameters, as docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs publishes. The other form,
googlenet_bn, is torchvision's `googlenet`, with batch normalisation, 3×3 in place of 5×5, a last pool of 2×2, and less
dropout. It has 6,624,904 parameters, as https://docs.pytorch.org/vision/stable/models/googlenet.html publishes.
"""

from functools import partial

from torch import nn

from .layers import LocalNorm, Parallel, initialise, unit

# The widths of each module: 1×1; 3×3 reduced, 3×3; 5×5 reduced, 5×5; after the pool. A pool is between two stages.
_STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)  # fmt: skip


class GoogLeNet(nn.Sequential):
    """Nine modules of four branches; from (3, 224, 224) to (1024, 7, 7), then to 1000 classes."""

    def __init__(self, *, normalised: bool) -> None:
        local: list[nn.Module] = [] if normalised else [LocalNorm()]
        layers: list[nn.Module] = [
            _unit(normalised, 3, 64, 7, stride=2), nn.MaxPool2d(3, stride=2, ceil_mode=True), *local,
            _unit(normalised, 64, 64, 1), _unit(normalised, 64, 192, 3), *local,
        ]  # fmt: skip
        channels = 192
        for stage, pool in zip(_STAGES, (3, 3, 2 if normalised else 3), strict=True):
            layers.append(nn.MaxPool2d(pool, stride=2, ceil_mode=True))
            for widths in stage:
                layers.append(_module(normalised, channels, widths))
                channels = widths[0] + widths[2] + widths[4] + widths[5]
        dropout = nn.Dropout(0.2 if normalised else 0.4)
        super().__init__(*layers, nn.AvgPool2d(7), nn.Flatten(), dropout, nn.Linear(channels, 1000))
        initialise(self)


def _module(normalised: bool, channels: int, widths: tuple[int, ...]) -> Parallel:
    one, three_reduced, three, five_reduced, five, pooled = widths
    unit_of = partial(_unit, normalised)
    return Parallel(
        unit_of(channels, one, 1),
        nn.Sequential(unit_of(channels, three_reduced, 1), unit_of(three_reduced, three, 3)),
        nn.Sequential(unit_of(channels, five_reduced, 1), unit_of(five_reduced, five, 3 if normalised else 5)),
        nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), unit_of(channels, pooled, 1)),
    )


def _unit(normalised: bool, channels: int, out: int, kernel: int, *, stride: int = 1) -> nn.Sequential:
    if normalised:
        return unit(channels, out, kernel, stride=stride)
    convolution = nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2)
    return nn.Sequential(convolution, nn.ReLU(inplace=True))
