"""GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), table 2. The head may share the
token embedding's weights, as published.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import MaskedCrossEntropy
from bapipe_executor.models.building import NetworkBuilder, seeded
from bapipe_executor.models.synthetic import SyntheticData, next_tokens

__all__ = ["full", "full_data", "gpt2", "loss", "tiny", "tiny_data", "tiny_tied"]

VOCABULARY, TOKENS = 50_257, 1024
TINY_VOCABULARY, TINY_TOKENS = 61, 12
INITIAL_DEVIATION = 0.02


def full(*, seed: int = 0, tied: bool = True, dropout: float = 0.1) -> LayeredModel:
    """GPT-2 medium: 24 blocks of width 1,024 with 16 heads, 354,823,168 parameters when tied."""
    with seeded(seed):
        return gpt2(24, 1024, 16, VOCABULARY, TOKENS, tied=tied, dropout=dropout)


def tiny(*, seed: int = 0, tied: bool = False) -> LayeredModel:
    """Three blocks of width 16 with two heads, on 12 tokens."""
    with seeded(seed):
        return gpt2(3, 16, 2, TINY_VOCABULARY, TINY_TOKENS, tied=tied, dropout=0.0)


def tiny_tied(*, seed: int = 0) -> LayeredModel:
    """`tiny`, its head sharing the weights of its token embedding."""
    return tiny(seed=seed, tied=True)


def loss() -> MaskedCrossEntropy:
    """The mean over the tokens that are not padding."""
    return MaskedCrossEntropy()


def full_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Sequences for `full`."""
    return next_tokens(batch_size, VOCABULARY, TOKENS, seed)


def tiny_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Sequences for `tiny`."""
    return next_tokens(batch_size, TINY_VOCABULARY, TINY_TOKENS, seed)


def gpt2(
    blocks: int, width: int, heads: int, vocabulary: int, tokens: int, *, tied: bool, dropout: float
) -> LayeredModel:
    """A layer for the embeddings, two a block (attention and MLP, each with its norm and residual addition), the final
    norm and the head.
    """
    net = NetworkBuilder("tokens")
    embedding = Embeddings(vocabulary, tokens, width, dropout)
    net.add("embedding", embedding)
    for block in range(blocks):
        net.add(f"block{block}.attention", SelfAttention(width, heads, dropout))
        net.add(f"block{block}.mlp", Mlp(width, dropout))
    net.add("norm", nn.LayerNorm(width))
    head = nn.Linear(width, vocabulary, bias=False)
    nn.init.normal_(head.weight, std=INITIAL_DEVIATION)
    if tied:
        head.weight = embedding.tokens.weight
    net.add("head", head)
    return net.build()


class Embeddings(nn.Module):
    """The embedding of each token plus that of its position: (samples, tokens) to (samples, tokens, width)."""

    def __init__(self, vocabulary: int, tokens: int, width: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(tokens, width)
        self.dropout = nn.Dropout(dropout)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=INITIAL_DEVIATION)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embeds token numbers."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: torch.Tensor = self.dropout(self.tokens(tokens) + self.positions(positions))
        return embedded


class SelfAttention(nn.Module):
    """Norm, causal self-attention, projection and residual addition on (samples, tokens, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Returns the stream with what attention adds."""
        split = self.queries_keys_values(self.norm(stream)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        rate = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(queries, keys, values, dropout_p=rate, is_causal=True)
        added = self.projection(mixed.transpose(1, 2).flatten(2))
        return stream + functional.dropout(added, self.dropout, self.training)


class Mlp(nn.Module):
    """Norm, a hidden layer four times as wide, and residual addition on (samples, tokens, width)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Returns the stream with what the hidden layer adds."""
        hidden = functional.gelu(self.widen(self.norm(stream)), approximate="tanh")
        return stream + functional.dropout(self.narrow(hidden), self.dropout, self.training)
