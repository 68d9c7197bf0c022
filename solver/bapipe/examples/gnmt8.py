"""GNMT with 8 LSTM layers, 4 of the encoder and 4 of the decoder: Wu et al., arXiv 1609.08144, in the version of
NVIDIA's DeepLearningExamples (attention on the first decoder layer, its context read by all), width 1,024, 32,320
words, sentences of 50 tokens.
"""

from __future__ import annotations

from bapipe.examples.kernels import ELEMENT_BYTES, Work, network
from bapipe.examples.sequences import add, attention_lstm, concatenate, dropout, embedding, linear, lstm
from bapipe.problem import Edge, ModelProfile

WIDTH, VOCABULARY, TOKENS, LAYERS = 1024, 32_320, 50, 4
STREAM = TOKENS * WIDTH
CONTEXT = "context"
ATTENTION = "decoder.lstm1"


class _Net:
    """The layers and edges so far; `last` is the layer that the next one reads."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.edges: list[Edge] = []
        self.last = ""

    def start(self, work: Work) -> None:
        """Adds a layer that reads no other."""
        self.works.append(work)
        self.last = work.id

    def append(self, work: Work, *others: str) -> None:
        """Adds a layer that reads the last one and `others`."""
        for source in (self.last, *others):
            self.edges.append(_output(source, work.id))
        self.start(work)


def gnmt8() -> ModelProfile:
    """Embeddings, a bidirectional first layer, residual edges from the third layer of each side on, attention edges."""
    net = _Net()
    _encoder(net)
    _decoder(net, net.last)
    net.append(linear("classifier", WIDTH, VOCABULARY, TOKENS))
    return network("gnmt8", net.works, __doc__ or "", edges=net.edges)


def _encoder(net: _Net) -> None:
    net.start(embedding("encoder.embedding", VOCABULARY, WIDTH, TOKENS))
    net.append(dropout("encoder.dropout1", STREAM))
    net.append(lstm("encoder.lstm1", WIDTH, WIDTH, TOKENS, directions=2))
    net.append(dropout("encoder.dropout2", 2 * STREAM))
    net.append(lstm("encoder.lstm2", 2 * WIDTH, WIDTH, TOKENS))
    for number in range(3, LAYERS + 1):
        before = net.last
        net.append(dropout(f"encoder.dropout{number}", STREAM))
        net.append(lstm(f"encoder.lstm{number}", WIDTH, WIDTH, TOKENS))
        net.append(add(f"encoder.add{number}", STREAM), before)


def _decoder(net: _Net, memory: str) -> None:
    net.start(embedding("decoder.embedding", VOCABULARY, WIDTH, TOKENS))
    net.append(dropout("decoder.dropout1", STREAM))
    net.append(attention_lstm(ATTENTION, WIDTH, WIDTH, TOKENS, TOKENS), memory)
    for number in range(2, LAYERS + 1):
        before = net.last
        net.append(dropout(f"decoder.dropout{number}", STREAM))
        net.append(concatenate(f"decoder.concat{number}", STREAM, STREAM))
        net.edges.append(_context(f"decoder.concat{number}"))
        net.append(lstm(f"decoder.lstm{number}", 2 * WIDTH, WIDTH, TOKENS))
        if number > 2:
            net.append(add(f"decoder.add{number}", STREAM), before)


def _output(source: str, target: str) -> Edge:
    """The attention layer writes two tensors, of which this is the first; every other layer writes one."""
    if source == ATTENTION:
        return Edge(source=source, target=target, bytes_per_sample=float(STREAM * ELEMENT_BYTES), tensor="output")
    return Edge(source=source, target=target)


def _context(target: str) -> Edge:
    return Edge(source=ATTENTION, target=target, bytes_per_sample=float(STREAM * ELEMENT_BYTES), tensor=CONTEXT)
