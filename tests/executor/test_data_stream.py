"""The same mini-batches on every rank and in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import numpy as np
import torch

from bapipe_executor import run_parts
from bapipe_executor.batch import Batch
from bapipe_executor.data_stream import digest, seeded
from bapipe_executor.random_numbers import seed_generators
from bapipe_executor.run_spec import RunSpec
from harness.jobs import data_of_its_own

if TYPE_CHECKING:
    from harness.pool import Pool


def draws(size: int) -> Iterator[Batch]:
    while True:
        values = torch.randn(size, 1) + np.random.rand() + random.random()
        yield Batch({"x": values}, values)


def drawn_at_once(size: int) -> list[Batch]:
    """A data set that is made as a whole when its factory is called."""
    return [batch for batch, _ in zip(draws(size), range(2), strict=False)]


def test_whatever_generator_they_draw_from() -> None:
    found = []
    for other in (3, 4):
        seed_generators(other)
        batches = seeded(draws(2), 7)
        outside = [(next(batches), torch.rand(()).item(), np.random.rand(), random.random())[0] for _ in range(3)]
        found.append([digest(batch) for batch in outside])
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


def test_a_data_set_that_is_made_at_once_is_the_same_on_every_rank() -> None:
    spec = RunSpec(model="m:m", data=f"{__name__}:drawn_at_once", loss="l:l", steps=1)
    found = []
    for rank in (0, 1):
        seed_generators(rank)
        found.append([digest(batch) for batch in run_parts.make_batches(spec, 2)])
    assert found[0] == found[1]


def test_what_is_drawn_outside_goes_on_where_it_was() -> None:
    seed_generators(1)
    expected = (torch.rand(()).item(), np.random.rand(), random.random())
    seed_generators(1)
    next(seeded(draws(2), 7))
    assert (torch.rand(()).item(), np.random.rand(), random.random()) == expected


@pytest.mark.xdist_group("executor workers")
def test_ranks_with_other_data_are_refused(pool: Pool) -> None:
    assert pool.run(data_of_its_own, 2, False) == ["", ""]
    for answer in pool.run(data_of_its_own, 2, True):
        assert "the mini-batches of rank 1 are not those of rank 0" in answer
