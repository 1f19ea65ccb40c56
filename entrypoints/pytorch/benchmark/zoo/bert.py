"""BERT's base model (https://arxiv.org/abs/1810.04805, section 3): 12 layers, 768 wide, 12 heads.

With the head that predicts masked tokens, whose matrix is that of the embedding, and without the pooler: 109,514,298
parameters, as `BertForMaskedLM` has. https://huggingface.co/google-bert/bert-base-uncased publishes 110,106,428, which
are these, the pooler (590,592) and the head that judges whether a sentence follows another (1,538).
"""

import torch
from torch import nn
from torch.nn import functional

from .layers import initialise
from .transformer import Attention, dense

_WIDTH, _LAYERS, _HEADS, _SEQUENCE, _VOCABULARY, _KINDS = 768, 12, 12, 512, 30_522, 2
_DROPOUT, _EPSILON = 0.1, 1e-12


class Bert(nn.Module):
    """From (batch, 512) tokens of one sentence to a score of each of 30,522 words for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_SEQUENCE, _WIDTH)
        self.kinds = nn.Embedding(_KINDS, _WIDTH)
        self.start = nn.Sequential(nn.LayerNorm(_WIDTH, eps=_EPSILON), nn.Dropout(_DROPOUT))
        self.layers = nn.Sequential(*(_Layer() for _ in range(_LAYERS)))
        self.head = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.LayerNorm(_WIDTH, eps=_EPSILON))
        self.bias = nn.Parameter(torch.zeros(_VOCABULARY))
        initialise(self, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.start(self.words(tokens) + self.positions.weight + self.kinds.weight[0]))
        return functional.linear(self.head(hidden), self.words.weight, self.bias)


class _Layer(nn.Module):
    """Normalises what attention and dense layers give, together with what they took."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(_WIDTH, _HEADS, dropout=_DROPOUT, causal=False)
        self.dense = dense(_WIDTH, "none")
        self.norms = nn.ModuleList(nn.LayerNorm(_WIDTH, eps=_EPSILON) for _ in range(2))
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = self.norms[0](tokens + self.dropout(self.attention(tokens)))
        return self.norms[1](tokens + self.dropout(self.dense(tokens)))
