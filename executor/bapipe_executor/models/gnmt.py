"""A translator like GNMT: Wu et al., arXiv 1609.08144, in the version of NVIDIA's DeepLearningExamples: an LSTM encoder
whose first layer reads in both directions, an LSTM decoder whose first layer attends to it, and residual connections.
"""

from __future__ import annotations

import torch
from torch import nn

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import MaskedCrossEntropy
from bapipe_executor.models.building import Add, Concatenate, NetworkBuilder, seeded
from bapipe_executor.models.synthetic import SyntheticData, sentence_pairs

__all__ = ["full", "full_data", "loss", "tiny", "tiny_data"]

VOCABULARY, TOKENS = 32_320, 50
TINY_VOCABULARY, TINY_TOKENS = 41, 6


def full(*, seed: int = 0, dropout: float = 0.2) -> LayeredModel:
    """Four LSTM layers of width 1,024 on each side, 32,320 words."""
    with seeded(seed):
        return _network(4, 1024, VOCABULARY, dropout)


def tiny(*, seed: int = 0) -> LayeredModel:
    """Three LSTM layers of width 8 on each side."""
    with seeded(seed):
        return _network(3, 8, TINY_VOCABULARY, dropout=0.0)


def loss() -> MaskedCrossEntropy:
    """The mean over the tokens that are not padding."""
    return MaskedCrossEntropy()


def full_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Pairs of sentences for `full`, of up to 50 words."""
    return sentence_pairs(batch_size, VOCABULARY, TOKENS, seed)


def tiny_data(batch_size: int, *, seed: int = 0) -> SyntheticData:
    """Pairs of sentences for `tiny`, of up to six words."""
    return sentence_pairs(batch_size, TINY_VOCABULARY, TINY_TOKENS, seed)


def _network(layers: int, width: int, vocabulary: int, dropout: float) -> LayeredModel:
    net = NetworkBuilder("source", "translation")
    memory = _encoder(net, layers, width, vocabulary, dropout)
    _decoder(net, memory, layers, width, vocabulary, dropout)
    net.add("classifier", nn.Linear(width, vocabulary))
    return net.build()


def _encoder(net: NetworkBuilder, layers: int, width: int, vocabulary: int, dropout: float) -> str:
    net.add("encoder.embedding", nn.Embedding(vocabulary, width, padding_idx=0), "source")
    net.add("encoder.lstm0", Lstm(width, width, dropout, both_directions=True))
    net.add("encoder.lstm1", Lstm(2 * width, width, dropout))
    for index in range(2, layers):
        before = net.last
        net.add(f"encoder.lstm{index}", Lstm(width, width, dropout))
        net.add(f"encoder.add{index}", Add(), net.last, before)
    return net.last


def _decoder(net: NetworkBuilder, memory: str, layers: int, width: int, vocabulary: int, dropout: float) -> None:
    net.add("decoder.embedding", nn.Embedding(vocabulary, width, padding_idx=0), "translation")
    net.add("decoder.lstm0", AttentionLstm(width, dropout), net.last, memory, "source")
    before, context = "decoder.lstm0:0", "decoder.lstm0:1"
    for index in range(1, layers):
        net.add(f"decoder.concat{index}", Concatenate(-1), before, context)
        net.add(f"decoder.lstm{index}", Lstm(2 * width, width, dropout))
        if index > 1:
            net.add(f"decoder.add{index}", Add(), net.last, before)
        before = net.last


class Lstm(nn.Module):
    """Dropout and an LSTM over (samples, tokens, inputs); its outputs are twice as wide in both directions."""

    def __init__(self, inputs: int, width: int, dropout: float, *, both_directions: bool = False) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.cells = nn.LSTM(inputs, width, batch_first=True, bidirectional=both_directions)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Returns the outputs of every token."""
        outputs: torch.Tensor = self.cells(self.dropout(stream))[0]
        return outputs


class AttentionLstm(nn.Module):
    """An LSTM, and the mean of the encoder's outputs weighted by how they fit its own: Bahdanau, Cho and Bengio, arXiv
    1409.0473. Padding of the source, token 0, gets no weight.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.lstm = Lstm(width, width, dropout)
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(
        self, stream: torch.Tensor, memory: torch.Tensor, source: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the outputs of every token and the context of each, both (samples, tokens, width)."""
        outputs = self.lstm(stream)
        fits = torch.tanh(self.queries(outputs).unsqueeze(2) + self.keys(memory).unsqueeze(1))
        scores = self.score(fits).squeeze(-1).masked_fill((source == 0).unsqueeze(1), float("-inf"))
        return outputs, torch.softmax(scores, dim=-1) @ memory
