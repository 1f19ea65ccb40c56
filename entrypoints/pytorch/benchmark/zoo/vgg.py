"""VGG (https://arxiv.org/abs/1409.1556, table 1: columns A, B, D and E), without batch normalisation.

vgg11 has 132,863,336 parameters, vgg13 133,047,848, vgg16 138,357,544 and vgg19 143,667,240, as torchvision publishes
them (https://docs.pytorch.org/vision/stable/models/vgg.html), and docs/models/models.md of
https://github.com/HewlettPackard/dlcookbook-dlbs.
"""

from torch import nn

from .layers import dense_head, initialise

_WIDTHS = (64, 128, 256, 512, 512)
_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Sequential):
    """Five stages of 3×3 convolutions, each ended by a pool; from (3, 224, 224) to (512, 7, 7); three dense layers."""

    def __init__(self, *, depth: int) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for width, convolutions in zip(_WIDTHS, _CONVOLUTIONS[depth], strict=True):
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, dense_head(512 * 7 * 7, 4096, 4096, 1000))
        initialise(self)
