"""Synthetic data: the batch of a step follows from the seed and the step alone, whoever asks, in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import torch
from torch import Generator, Tensor

from bapipe_executor.batch import Batch

IGNORED = -100
"""The target of what does not count."""

_STEPS_PER_SEED = 1_000_003


@dataclass(frozen=True)
class SyntheticData:
    """Endless batches of random samples: `make` draws so many samples with a generator."""

    make: Callable[[Generator, int], Batch]
    batch_size: int
    seed: int = 0

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step) for step in count())

    def batch(self, step: int) -> Batch:
        """The batch of this step, counted from 0."""
        return self.make(Generator().manual_seed(self.seed * _STEPS_PER_SEED + step), self.batch_size)


def images_and_classes(
    batch_size: int,
    shape: tuple[int, int, int],
    classes: int,
    dtype: torch.dtype,
    seed: int,
    *,
    per_pixel: bool = False,
) -> SyntheticData:
    """Normally distributed images (channels, height, width), with a class each, or one each pixel."""

    def make(generator: Generator, size: int) -> Batch:
        images = torch.randn(size, *shape, generator=generator, dtype=torch.float64).to(dtype)
        places = (size, *shape[1:]) if per_pixel else (size,)
        return Batch({"images": images}, torch.randint(classes, places, generator=generator))

    return SyntheticData(make, batch_size, seed)


def next_tokens(batch_size: int, vocabulary: int, tokens: int, seed: int) -> SyntheticData:
    """Sequences of `tokens` random tokens, each to be followed by the next; every sequence ends in padding of its own
    length, at most half of it, which does not count.
    """

    def make(generator: Generator, size: int) -> Batch:
        drawn = torch.randint(vocabulary, (size, tokens + 1), generator=generator)
        target = drawn[:, 1:].masked_fill(_padding(generator, size, tokens), IGNORED)
        return Batch({"tokens": drawn[:, :-1].contiguous()}, target)

    return SyntheticData(make, batch_size, seed)


def sentence_pairs(batch_size: int, vocabulary: int, tokens: int, seed: int) -> SyntheticData:
    """Sentences to be translated, the translations as the decoder reads them, and as it is to write them.

    Token 0 pads the sentences; padding of a translation does not count.
    """

    def make(generator: Generator, size: int) -> Batch:
        source = torch.randint(1, vocabulary, (size, tokens), generator=generator)
        source = source.masked_fill(_padding(generator, size, tokens), 0)
        words = torch.randint(1, vocabulary, (size, tokens + 1), generator=generator)
        padding = _padding(generator, size, tokens)
        inputs = {"source": source, "translation": words[:, :-1].masked_fill(padding, 0)}
        return Batch(inputs, words[:, 1:].masked_fill(padding, IGNORED))

    return SyntheticData(make, batch_size, seed)


def _padding(generator: Generator, size: int, tokens: int) -> Tensor:
    """Where sequences of random length, at least half of `tokens`, have ended: (size, tokens)."""
    lengths = torch.randint(tokens - tokens // 2, tokens + 1, (size, 1), generator=generator)
    return torch.arange(tokens) >= lengths
