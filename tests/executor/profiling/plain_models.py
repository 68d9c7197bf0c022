"""Networks and batches as a user has them: modules that know nothing of BaPipe."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bapipe_executor.batch import Batch


class Encoder(nn.Module):
    """Two alike layers of torch's own transformer, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 30)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embedding(tokens)
        for block in self.blocks:
            stream = block(stream)
        scores: Tensor = self.head(stream)
        return scores


def encoder() -> nn.Module:
    return Encoder()


def encoder_data(batch_size: int) -> Iterator[Batch]:
    tokens = torch.randint(30, (batch_size, 6), generator=torch.Generator().manual_seed(0))
    yield Batch({"tokens": tokens}, tokens)
