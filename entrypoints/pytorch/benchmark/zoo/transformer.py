"""Attention and the dense layers behind it, of which ViT, BERT and GPT-2 are made."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention over (batch, sequence, width); ``causal`` lets a token see only those before it."""

    def __init__(self, width: int, heads: int, *, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.taken = nn.Linear(width, 3 * width)
        self.given = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.taken(tokens).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        return self.given(mixed.transpose(1, 2).flatten(-2))


class PreNorm(nn.Module):
    """A layer that normalises what attention and dense layers take: ViT's and GPT-2's."""

    def __init__(self, width: int, heads: int, *, dropout: float, causal: bool, epsilon: float, gelu: str) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=epsilon) for _ in range(2))
        self.attention = Attention(width, heads, dropout=dropout, causal=causal)
        self.dense = dense(width, gelu)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.dropout(self.attention(self.norms[0](tokens)))
        return tokens + self.dropout(self.dense(self.norms[1](tokens)))


def dense(width: int, gelu: str) -> nn.Sequential:
    """Two dense layers with GELU between them, four times as wide; ``gelu`` is "none", or "tanh" to approximate it."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate=gelu), nn.Linear(4 * width, width))
