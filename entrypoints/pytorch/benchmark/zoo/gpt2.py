"""GPT-2's smallest model: 12 layers, 768 wide, 12 heads; 124,439,808 parameters.

https://huggingface.co/openai-community/gpt2 says 124 million; the 117 million of the paper, in table 2 of
https://cdn.openai.com/better-language-models/language_models.pdf, were a mistake. The matrix of the embedding, which is
also that of the head, counts once.
"""

import torch
from torch import nn
from torch.nn import functional

from .layers import initialise
from .transformer import PreNorm

_WIDTH, _LAYERS, _HEADS, _SEQUENCE, _VOCABULARY = 768, 12, 12, 1024, 50_257
_DROPOUT = 0.1


class GPT2(nn.Module):
    """From (batch, 1024) tokens to a score of each of 50,257 for what follows each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_SEQUENCE, _WIDTH)
        self.dropout = nn.Dropout(_DROPOUT)
        self.layers = nn.Sequential(
            *(PreNorm(_WIDTH, _HEADS, dropout=_DROPOUT, causal=True, epsilon=1e-5, gelu="tanh") for _ in range(_LAYERS))
        )
        self.norm = nn.LayerNorm(_WIDTH)
        initialise(self, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.dropout(self.words(tokens) + self.positions.weight))
        return functional.linear(self.norm(hidden), self.words.weight)
