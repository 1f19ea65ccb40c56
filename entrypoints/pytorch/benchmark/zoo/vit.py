"""Vision Transformer ViT-B/16 (https://arxiv.org/abs/2010.11929, table 1): 86,567,656 parameters.

torchvision publishes the count: https://docs.pytorch.org/vision/stable/models/vision_transformer.html.
"""

import torch
from torch import nn

from .layers import initialise
from .transformer import PreNorm

_WIDTH, _LAYERS, _HEADS, _PATCH, _SIDE = 768, 12, 12, 16, 224


class ViT(nn.Module):
    """Twelve layers over 196 patches of 16×16 of (3, 224, 224) and a class token; 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, _WIDTH, _PATCH, stride=_PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.positions = nn.Parameter(torch.empty(1, (_SIDE // _PATCH) ** 2 + 1, _WIDTH).normal_(std=0.02))
        self.layers = nn.Sequential(
            *(PreNorm(_WIDTH, _HEADS, dropout=0.0, causal=False, epsilon=1e-6, gelu="none") for _ in range(_LAYERS))
        )
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-6)
        self.head = nn.Linear(_WIDTH, 1000)
        initialise(self, std=0.02)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        return self.head(self.norm(self.layers(tokens)[:, 0]))
