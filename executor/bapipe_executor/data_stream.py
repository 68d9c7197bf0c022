"""Mini-batches that come out the same on every rank and in every run, whatever else draws random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import torch

from bapipe_executor.batch import Batch


def seeded(batches: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """`batches`, made with random numbers of their own: torch's on the CPU, and Python's."""
    of_torch = torch.Generator().manual_seed(seed).get_state()
    of_python = random.Random(seed).getstate()
    iterator: Iterator[Batch] | None = None
    while True:
        outside = torch.get_rng_state(), random.getstate()
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        try:
            iterator = iter(batches) if iterator is None else iterator
            batch = next(iterator, None)
        finally:
            of_torch, of_python = torch.get_rng_state(), random.getstate()
            torch.set_rng_state(outside[0])
            random.setstate(outside[1])
        if batch is None:
            return
        yield batch
