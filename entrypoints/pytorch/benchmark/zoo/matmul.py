"""One large matrix product, which shows the peak that a device reaches; its weights are 4096² = 16,777,216."""

import torch
from torch import nn


class MatMul(nn.Module):
    """A sample is a square matrix; it is multiplied with one of weights: 2 · side³ operations, and no other large one.

    The rows' mean is the output, so that a loss can be taken of it: side² additions.
    """

    def __init__(self, *, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(side, side).normal_(std=side**-0.5))

    def forward(self, matrices: torch.Tensor) -> torch.Tensor:
        return (matrices @ self.weight).mean(dim=1)
