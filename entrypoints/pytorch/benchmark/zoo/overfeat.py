"""OverFeat, the fast model (https://arxiv.org/abs/1312.6229, table 1; table 4 says 145 million parameters).

docs/models/models.md of https://github.com/HewlettPackard/dlcookbook-dlbs publishes 145,920,872.
"""

from torch import nn

from .layers import dense_head, initialise


class Overfeat(nn.Sequential):
    """Five convolutions and three dense layers; from (3, 231, 231) to (1024, 6, 6), then to 1000 classes."""

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
