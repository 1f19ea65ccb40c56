"""Residual networks (https://arxiv.org/abs/1512.03385), with the stride in the 3×3 convolution of a bottleneck.

The networks of 18 to 152 layers have 11,689,512, 21,797,672, 25,557,032, 44,549,160 and 60,192,808 parameters, as
torchvision publishes (https://docs.pytorch.org/vision/stable/models/resnet.html). The network of 200 layers has
64,673,832, as pytorchcv publishes (https://github.com/osmr/imgclsmob, pytorch/pytorchcv/models/resnet.py). For 269
layers docs/models/models.md of
https://github.com/HewlettPackard/dlcookbook-dlbs publishes 102,326,456. That number includes 253,072 statistics of the
272 normalisations, so 102,073,384 are parameters. Its other counts include such statistics too.

The paper adds the input of a block to its output, and projects the input only if the shapes differ (section 3.3, and
option B of section 4.1). So the first stage of 18 and 34 layers, from 64 to 64 channels, projects nothing. The PyTorch
code of that suite (python/pytorch_benchmarks/models/resnet.py) projects there too, by a 1×1 convolution (4,096) with
its normalisation (128). It has 4,224 parameters more: 11,693,736 for 18 layers and 21,801,896 for 34. The networks here
are the paper's. In that suite's table the network of 50 layers also has one more bias.
"""

import torch
from torch import nn

from .layers import initialise

_BLOCKS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
    200: (3, 24, 36, 3), 269: (3, 30, 48, 8),
}  # fmt: skip
_WIDTHS = (64, 128, 256, 512)


class ResNet(nn.Sequential):
    """Four stages of blocks, bottlenecks from 50 layers on; from (3, 224, 224) to (7, 7), then to 1000 classes."""

    def __init__(self, *, depth: int) -> None:
        block, expansion = (_Bottleneck, 4) if depth >= 50 else (_Basic, 1)
        layers: list[nn.Module] = [*_normalise(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
        channels = 64
        for stage, (width, blocks) in enumerate(zip(_WIDTHS, _BLOCKS[depth], strict=True)):
            for number in range(blocks):
                layers.append(block(channels, width, 2 if stage and not number else 1))
                channels = width * expansion
        super().__init__(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(channels, 1000))
        initialise(self)
        for layer in layers:
            if isinstance(layer, _ResidualBlock):  # else the outputs of an untrained network overflow in half precision
                nn.init.constant_(layer.branch[-1].weight, sum(_BLOCKS[depth]) ** -0.5)


class _ResidualBlock(nn.Module):
    """Adds the output of ``branch`` to its input, or to the input's projection if the shapes differ."""

    def __init__(self, channels: int, out: int, stride: int, branch: nn.Sequential) -> None:
        super().__init__()
        self.branch = branch
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_normalise(channels, out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.relu(self.branch(images) + self.shortcut(images))


class _Basic(_ResidualBlock):
    """Two 3×3 convolutions."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        branch = nn.Sequential(
            *_normalise(channels, width, 3, stride), nn.ReLU(inplace=True), *_normalise(width, width, 3)
        )
        super().__init__(channels, width, stride, branch)


class _Bottleneck(_ResidualBlock):
    """1×1, 3×3 and 1×1 convolutions; the last has four times the width."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        branch = nn.Sequential(
            *_normalise(channels, width, 1), nn.ReLU(inplace=True),
            *_normalise(width, width, 3, stride), nn.ReLU(inplace=True),
            *_normalise(width, 4 * width, 1),
        )  # fmt: skip
        super().__init__(channels, 4 * width, stride, branch)


def _normalise(channels: int, out: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(out)
