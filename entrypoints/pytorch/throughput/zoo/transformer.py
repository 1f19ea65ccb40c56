"""Models of attention and dense layers: ViT-B/16, BERT's base model and GPT-2's smallest model.

ViT-B/16 (https://arxiv.org/abs/2010.11929, table 1) has 86,567,656 parameters, as torchvision publishes them:
https://docs.pytorch.org/vision/stable/models/vision_transformer.html.

BERT (https://arxiv.org/abs/1810.04805, section 3) has the head that predicts masked tokens, whose matrix is that of the
embedding, and no pooler: 109,514,298 parameters, as `BertForMaskedLM`. The 110,106,428 that
https://huggingface.co/google-bert/bert-base-uncased publishes are these, the pooler (590,592) and the head that judges
if a sentence follows another (1,538).

GPT-2 has 124,439,808. https://huggingface.co/openai-community/gpt2 says 124 million; the 117 million of the paper, in
table 2 of https://cdn.openai.com/better-language-models/language_models.pdf, were a mistake. The matrix of the
embedding, which is also that of the head, counts once.
"""

import torch
from torch import nn
from torch.nn import functional

from .layers import initialise

_WIDTH, _LAYERS, _HEADS = 768, 12, 12  # of all three models
_DROPOUT = 0.1
_PATCH, _SIDE = 16, 224


class ViT(nn.Module):
    """Twelve layers over 196 patches of 16×16 of (3, 224, 224) and a class token; 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, _WIDTH, _PATCH, stride=_PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.positions = nn.Parameter(torch.empty(1, (_SIDE // _PATCH) ** 2 + 1, _WIDTH).normal_(std=0.02))
        layers = (_PreNorm(dropout=0.0, causal=False, epsilon=1e-6, gelu="none") for _ in range(_LAYERS))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-6)
        self.head = nn.Linear(_WIDTH, 1000)
        initialise(self, std=0.02)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        return self.head(self.norm(self.layers(tokens)[:, 0]))


class Bert(nn.Module):
    """From (batch, 512) tokens of one sentence to a score of each of 30,522 words for each token."""

    def __init__(self, *, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, _WIDTH)
        self.positions = nn.Embedding(sequence, _WIDTH)
        self.kinds = nn.Embedding(2, _WIDTH)
        self.start = nn.Sequential(nn.LayerNorm(_WIDTH, eps=1e-12), nn.Dropout(_DROPOUT))
        self.layers = nn.Sequential(*(_PostNorm() for _ in range(_LAYERS)))
        self.head = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.LayerNorm(_WIDTH, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        initialise(self, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.start(self.words(tokens) + self.positions.weight + self.kinds.weight[0]))
        return functional.linear(self.head(hidden), self.words.weight, self.bias)


class GPT2(nn.Module):
    """From (batch, 1024) tokens to a score of each of 50,257 words for the token that follows each of them."""

    def __init__(self, *, sequence: int, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, _WIDTH)
        self.positions = nn.Embedding(sequence, _WIDTH)
        self.dropout = nn.Dropout(_DROPOUT)
        layers = (_PreNorm(dropout=_DROPOUT, causal=True, epsilon=1e-5, gelu="tanh") for _ in range(_LAYERS))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(_WIDTH)
        initialise(self, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.dropout(self.words(tokens) + self.positions.weight))
        return functional.linear(self.norm(hidden), self.words.weight)


class _Attention(nn.Module):
    """Multi-head self-attention over (batch, sequence, width); ``causal`` hides the later tokens from each token."""

    def __init__(self, *, dropout: float, causal: bool) -> None:
        super().__init__()
        self.dropout, self.causal = dropout, causal
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.projection = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(tokens).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        return self.projection(mixed.transpose(1, 2).flatten(-2))


class _PreNorm(nn.Module):
    """A layer that normalises the inputs of attention and of the dense layers, as in ViT and GPT-2."""

    def __init__(self, *, dropout: float, causal: bool, epsilon: float, gelu: str) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(_WIDTH, eps=epsilon) for _ in range(2))
        self.attention = _Attention(dropout=dropout, causal=causal)
        self.dense = _dense(gelu)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.dropout(self.attention(self.norms[0](tokens)))
        return tokens + self.dropout(self.dense(self.norms[1](tokens)))


class _PostNorm(nn.Module):
    """A layer of BERT, which normalises the sums of inputs and outputs of attention and of the dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = _Attention(dropout=_DROPOUT, causal=False)
        self.dense = _dense("none")
        self.norms = nn.ModuleList(nn.LayerNorm(_WIDTH, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = self.norms[0](tokens + self.dropout(self.attention(tokens)))
        return self.norms[1](tokens + self.dropout(self.dense(tokens)))


def _dense(gelu: str) -> nn.Sequential:
    """Return two dense layers with GELU between them; ``gelu`` is "none", or "tanh" for its approximation."""
    return nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(approximate=gelu), nn.Linear(4 * _WIDTH, _WIDTH))
