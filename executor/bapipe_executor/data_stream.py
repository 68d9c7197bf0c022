"""Mini-batches that come out the same on every rank and in every run, whatever else draws random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain

import torch
import torch.distributed as dist

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.batch import Batch
from bapipe_executor.random_numbers import GeneratorStates, generator_states, seed_generators, set_generators


def seeded(batches: Iterable[Batch], seed: int) -> Iterator[Batch]:
    """`batches`, made with random numbers of their own: torch's on the CPU, numpy's and Python's."""
    inside: GeneratorStates | None = None
    iterator: Iterator[Batch] | None = None
    while True:
        outside = generator_states()
        if inside is None:
            seed_generators(seed)
        else:
            set_generators(inside)
        try:
            iterator = iter(batches) if iterator is None else iterator
            batch = next(iterator, None)
        finally:
            inside = generator_states()
            set_generators(outside)
        if batch is None:
            return
        yield batch


def alike(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, once the first of them is known to be the same on every rank.

    Raises, on every rank:
        InvalidInputError: it is not, and stages would be trained on what does not belong together.
    """
    first = next(batches, None)
    digests: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(digests, "" if first is None else digest(first))
    differing = [rank for rank, found in enumerate(digests) if found != digests[0]]
    if differing:
        detail = (
            f"the mini-batches of rank {differing[0]} are not those of rank 0; each makes the data by itself, and must "
            "make the same: draw from torch's, numpy's or Python's global generators, which are seeded, or seed "
            "your own"
        )
        raise InvalidInputError([Fault("data_differ", detail, "/data")])
    return batches if first is None else chain([first], batches)


def digest(batch: Batch) -> str:
    """What tells a batch from every other."""
    found = hashlib.sha256()
    for name, tensor in (*sorted(batch.inputs.items()), ("", batch.target)):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
