"""AlexNet, OverFeat and VGG: convolutions, then three large dense layers.

AlexNet (https://papers.nips.cc/paper/4824) without groups has 62,378,344 parameters. alexnet_owt ("One weird trick",
https://arxiv.org/abs/1404.5997), its later form for one column of GPUs, has 61,100,840. OverFeat's fast model
(https://arxiv.org/abs/1312.6229, table 1; table 4 says 145 million) has 145,920,872.

VGG (https://arxiv.org/abs/1409.1556, table 1: columns A, B, D and E) is without batch normalisation. vgg11 has
132,863,336 parameters, vgg13 133,047,848, vgg16 138,357,544 and vgg19 143,667,240. These counts are from the table
docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs. Torchvision has the same counts for VGG
(https://docs.pytorch.org/vision/stable/models/vgg.html). Its `alexnet` is alexnet_owt; it pads images of 224 pixels to
227.
"""

from torch import nn

from .layers import LocalNorm, dense_head, initialise

_VGG_WIDTHS = (64, 128, 256, 512, 512)
_VGG_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class AlexNet(nn.Sequential):
    """Five convolutions, the first two with local response normalisation if ``normalised``; from (3, 227, 227)."""

    def __init__(self, *, widths: tuple[int, int, int, int, int], normalised: bool) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for number, (width, kernel) in enumerate(zip(widths, (11, 5, 3, 3, 3), strict=True)):
            stride, padding = (1, kernel // 2) if number else (4, 0)
            layers += [nn.Conv2d(channels, width, kernel, stride=stride, padding=padding), nn.ReLU(inplace=True)]
            if normalised and number < 2:
                layers.append(LocalNorm())
            if number in (0, 1, 4):
                layers.append(nn.MaxPool2d(3, stride=2))
            channels = width
        super().__init__(*layers, dense_head(256 * 6 * 6, 4096, 4096, 1000))
        initialise(self)


class Overfeat(nn.Sequential):
    """Five convolutions; from (3, 231, 231) to (1024, 6, 6)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(96, 256, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(256, 512, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(512, 1024, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            dense_head(1024 * 6 * 6, 3072, 4096, 1000),
        )  # fmt: skip
        initialise(self)


class VGG(nn.Sequential):
    """Five stages of 3×3 convolutions, each with a pool at its end; from (3, 224, 224) to (512, 7, 7)."""

    def __init__(self, *, depth: int) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for width, convolutions in zip(_VGG_WIDTHS, _VGG_CONVOLUTIONS[depth], strict=True):
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        super().__init__(*layers, dense_head(512 * 7 * 7, 4096, 4096, 1000))
        initialise(self)
