"""Networks like Llama 3: Grattafiori et al., arXiv 2407.21783, table 3. The large ones are for profiles
computed without the network: make them under `torch.device("meta")`, where parameters take no memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import MaskedCrossEntropy
from bapipe_executor.models.building import NetworkBuilder, seeded
from bapipe_executor.models.synthetic import SyntheticData, next_tokens

__all__ = [
    "Sizes",
    "full",
    "full_data",
    "llama",
    "loss",
    "short_data",
    "tiny",
    "tiny_data",
]

ROTARY_BASE = 500_000.0


@dataclass(frozen=True)
class Sizes:
    """How large the network is; several heads share the keys and values of one of `key_value_heads`."""

    blocks: int
    width: int
    hidden: int
    heads: int
    key_value_heads: int
    vocabulary: int
    tokens: int


LLAMA_70B = Sizes(80, 8192, 28_672, 64, 8, 128_256, 8192)
TINY = Sizes(2, 16, 24, 4, 2, 61, 12)


def full() -> LayeredModel:
    """Llama 3 70B: 70,553,706,496 parameters in bfloat16, 141 GB."""
    return llama(LLAMA_70B, dtype=torch.bfloat16)


def tiny(*, seed: int = 0) -> LayeredModel:
    """Two blocks of width 16 with four heads, on 12 tokens."""
    with seeded(seed):
        return llama(TINY)


def loss() -> MaskedCrossEntropy:
    """The mean over the tokens that are not padding."""
    return MaskedCrossEntropy()


def full_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Sequences of 8,192 tokens for `full`."""
    return next_tokens(batch_size, LLAMA_70B.vocabulary, LLAMA_70B.tokens, seed)


def short_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Sequences of 2,048 tokens for `full`, which 64 devices of 80 GB train without recomputation."""
    return next_tokens(batch_size, LLAMA_70B.vocabulary, 2048, seed)


def tiny_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Sequences for `tiny`."""
    return next_tokens(batch_size, TINY.vocabulary, TINY.tokens, seed)


def llama(sizes: Sizes, *, dtype: torch.dtype = torch.float32) -> LayeredModel:
    """A layer for the embedding, two a block (attention and MLP), the final norm and the head, which shares nothing."""
    net = NetworkBuilder("tokens")
    net.add("embedding", nn.Embedding(sizes.vocabulary, sizes.width, dtype=dtype))
    for block in range(sizes.blocks):
        net.add(f"block{block}.attention", SelfAttention(sizes, dtype))
        net.add(f"block{block}.mlp", Mlp(sizes, dtype))
    net.add("norm", nn.RMSNorm(sizes.width, eps=1e-5, dtype=dtype))
    net.add("head", nn.Linear(sizes.width, sizes.vocabulary, bias=False, dtype=dtype))
    return net.build()


class SelfAttention(nn.Module):
    """Norm, causal self-attention with rotary positions, projection and residual addition."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype) -> None:
        super().__init__()
        self.sizes = sizes
        head = sizes.width // sizes.heads
        shared = sizes.key_value_heads * head
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5, dtype=dtype)
        self.queries = nn.Linear(sizes.width, sizes.width, bias=False, dtype=dtype)
        self.keys = nn.Linear(sizes.width, shared, bias=False, dtype=dtype)
        self.values = nn.Linear(sizes.width, shared, bias=False, dtype=dtype)
        self.projection = nn.Linear(sizes.width, sizes.width, bias=False, dtype=dtype)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Returns the stream (samples, tokens, width) with what attention adds."""
        normed = self.norm(stream)
        queries = rotate(self._heads(self.queries(normed), self.sizes.heads))
        keys = rotate(self._heads(self.keys(normed), self.sizes.key_value_heads))
        values = self._heads(self.values(normed), self.sizes.key_value_heads)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
        added: torch.Tensor = self.projection(mixed.transpose(1, 2).flatten(2))
        return stream + added

    @staticmethod
    def _heads(tensor: torch.Tensor, heads: int) -> torch.Tensor:
        return tensor.view(*tensor.shape[:-1], heads, -1).transpose(1, 2)


class Mlp(nn.Module):
    """Norm, a gated hidden layer (SwiGLU), and residual addition."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5, dtype=dtype)
        self.gate = nn.Linear(sizes.width, sizes.hidden, bias=False, dtype=dtype)
        self.widen = nn.Linear(sizes.width, sizes.hidden, bias=False, dtype=dtype)
        self.narrow = nn.Linear(sizes.hidden, sizes.width, bias=False, dtype=dtype)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Returns the stream (samples, tokens, width) with what the hidden layer adds."""
        normed = self.norm(stream)
        added: torch.Tensor = self.narrow(functional.silu(self.gate(normed)) * self.widen(normed))
        return stream + added


def rotate(heads: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of (samples, heads, tokens, width): Su et al., arXiv 2104.09864."""
    tokens, width = heads.shape[-2:]
    places = torch.arange(tokens, device=heads.device, dtype=torch.float32)
    exponents = torch.arange(0, width, 2, device=heads.device, dtype=torch.float32) / width
    angles = torch.outer(places, ROTARY_BASE**-exponents)
    cosine, sine = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
