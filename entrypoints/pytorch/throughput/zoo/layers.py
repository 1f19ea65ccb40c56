"""Layers of several families."""

from itertools import pairwise

import torch
from torch import nn

Kernel = int | tuple[int, int]
Step = tuple[int, Kernel] | tuple[int, Kernel, int]


def initialise(module: nn.Module, std: float | None = None) -> None:
    """Draw the weights of all convolutions, dense layers and embeddings again, and set their biases to zero.

    The default is He's deviation for convolutions (https://arxiv.org/abs/1502.01852), and for dense layers one smaller
    by √2, which keeps the first losses small. With torch's deviations, values shrink layer by layer in deep networks
    without normalisation. Processors take longer, or less power, for numbers near zero.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.Embedding):
            if std is None:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu" if isinstance(layer, nn.Conv2d) else "linear")
            else:
                nn.init.normal_(layer.weight, std=std)
            if getattr(layer, "bias", None) is not None:
                nn.init.zeros_(layer.bias)


def dense_head(*sizes: int) -> nn.Sequential:
    """Return dense layers of these sizes after a flatten; all but the last have ReLU and dropout of a half."""
    layers: list[nn.Module] = [nn.Flatten()]
    for size, following in pairwise(sizes[:-1]):
        layers += [nn.Linear(size, following), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(*sizes[-2:]))


def unit(channels: int, out: int, kernel: Kernel, *, stride: int = 1, padding: Kernel | None = None) -> nn.Sequential:
    """Return a convolution without bias, batch normalisation and ReLU.

    By default the padding keeps an image's size at stride 1.
    """
    if padding is None:
        padding = (kernel // 2) if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(out, eps=0.001),
        nn.ReLU(inplace=True),
    )


def chain(channels: int, *steps: Step) -> nn.Sequential:
    """Return a sequence of units; a step is ``(out, kernel)``, or ``(out, kernel, stride)`` without padding."""
    layers = []
    for step in steps:
        out, kernel, *stride = step
        layers.append(unit(channels, out, kernel, stride=stride[0] if stride else 1, padding=0 if stride else None))
        channels = out
    return nn.Sequential(*layers)


class LocalNorm(nn.LocalResponseNorm):
    """AlexNet's normalisation over five channels, in float32: CPUs have no other type for it, and squares overflow."""

    def __init__(self) -> None:
        super().__init__(5, alpha=0.0001, beta=0.75, k=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.float()).to(images.dtype)


class Parallel(nn.Module):
    """Branches with the same input; their output channels are joined in the order of the branches."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(images) for branch in self.branches], dim=1)
