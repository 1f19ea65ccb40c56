"""AlexNet (https://papers.nips.cc/paper/4824) without groups, and its later form for one column of GPUs.

alexnet has 62,378,344 parameters, alexnet_owt ("One weird trick", https://arxiv.org/abs/1404.5997) 61,100,840, as
docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs publishes them. torchvision's `alexnet` is
alexnet_owt, on images of 224 that it pads to 227.
"""

from torch import nn

from .layers import LocalNorm, dense_head, initialise


class AlexNet(nn.Sequential):
    """Five convolutions, two of them with local response normalisation; three dense layers."""

    def __init__(self) -> None:
        super().__init__(*_features((96, 256, 384, 384, 256), normalised=True), dense_head(9216, 4096, 4096, 1000))
        initialise(self)


class AlexNetOWT(nn.Sequential):
    """Five narrower convolutions without normalisation; the same three dense layers."""

    def __init__(self) -> None:
        super().__init__(*_features((64, 192, 384, 256, 256), normalised=False), dense_head(9216, 4096, 4096, 1000))
        initialise(self)


def _features(widths: tuple[int, int, int, int, int], *, normalised: bool) -> list[nn.Module]:
    """From (3, 227, 227) to (256, 6, 6)."""
    layers: list[nn.Module] = []
    channels = 3
    for number, width in enumerate(widths):
        kernel = (11, 5, 3, 3, 3)[number]
        layers += [
            nn.Conv2d(channels, width, kernel, stride=1 if number else 4, padding=kernel // 2 if number else 0),
            nn.ReLU(inplace=True),
        ]
        if normalised and number < 2:
            layers.append(LocalNorm())
        if number in (0, 1, 4):
            layers.append(nn.MaxPool2d(3, stride=2))
        channels = width
    return layers
