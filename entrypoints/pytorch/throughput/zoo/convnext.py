"""ConvNeXt (https://arxiv.org/abs/2201.03545), without stochastic depth, which does not change the operations.

tiny has 28,589,128 parameters, small 50,223,688, base 88,591,464 and large 197,767,336, as torchvision publishes them:
https://docs.pytorch.org/vision/stable/models/convnext.html.
"""

from itertools import pairwise

import torch
from torch import nn

from .layers import initialise

_SHAPES = {
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 768)),
    "small": ((3, 3, 27, 3), (96, 192, 384, 768)),
    "base": ((3, 3, 27, 3), (128, 256, 512, 1024)),
    "large": ((3, 3, 27, 3), (192, 384, 768, 1536)),
}


class ConvNeXt(nn.Sequential):
    """Four stages of blocks; from (3, 224, 224) to (7, 7), then to 1000 classes."""

    def __init__(self, *, size: str) -> None:
        blocks, widths = _SHAPES[size]
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, stride=4), _Norm(widths[0], eps=1e-6)]
        layers += [_ConvNextBlock(widths[0]) for _ in range(blocks[0])]
        for (width, following), count in zip(pairwise(widths), blocks[1:], strict=True):
            layers += [_Norm(width, eps=1e-6), nn.Conv2d(width, following, 2, stride=2)]
            layers += [_ConvNextBlock(following) for _ in range(count)]
        super().__init__(
            *layers, nn.AvgPool2d(7), _Norm(widths[-1], eps=1e-6), nn.Flatten(), nn.Linear(widths[-1], 1000)
        )
        initialise(self, std=0.02)


class _Norm(nn.LayerNorm):
    """Normalises the channels of each pixel of (batch, channels, height, width)."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNextBlock(nn.Module):
    """A 7×7 convolution of each channel, then two dense layers over the channels of each pixel, scaled and added.

    The scale starts at 0.1, as with the paper's 1e-6 gradients vanish in half precision.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.dense = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mixed = self.dense(self.depthwise(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return images + self.scale * mixed
