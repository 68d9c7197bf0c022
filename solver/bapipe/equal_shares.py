"""Partitions to start from: equal shares of work, and of memory, along the topological order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bapipe.cuts import Array, Indices
from bapipe.formulations.base import PartitionProblem

Cuts = tuple[int, ...]


def equal_shares(problem: PartitionProblem, chain: Indices) -> Iterator[Cuts]:
    """Cuts of `chain` into as many stages as the candidate has devices; none where it is too short."""
    costs, stages = problem.costs, problem.num_stages
    if stages < len(chain):
        for amount in (costs.work_s, costs.static_bytes + problem.in_flight(0) * costs.stash_bytes):
            yield _nearest(amount[chain], chain, stages)


def _nearest(amount: Array, chain: Indices, num_stages: int) -> Cuts:
    """Cuts of `chain` nearest to equal shares of `amount` ([chain], never falling), at least one step a stage."""
    wanted = amount[-1] * np.arange(1, num_stages) / num_stages
    places = np.searchsorted(amount, wanted)
    steps = np.arange(1, num_stages)
    ahead = np.maximum.accumulate(np.maximum(places, steps) - steps) + steps
    places = np.minimum(ahead, len(chain) - 1 - num_stages + steps)
    return (*(int(cut) for cut in chain[places]), int(chain[-1]))
