"""Partitions, and the last stages of partitions, as rows of an array: what they take, and how they can be changed.

An entry is a stage: its inner cut, plus the number of cuts times that of its share where devices are split. The last
entry of a row is the cut behind its last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from bapipe.cuts import Array, Indices
from bapipe.formulations.base import PartitionProblem, PartitionResult
from bapipe.formulations.suffix_replay import SuffixStages


@dataclass(frozen=True)
class PartitionRows:
    """Reads rows of stages of one problem."""

    problem: PartitionProblem

    @cached_property
    def size(self) -> int:
        """The number of cuts."""
        return self.problem.costs.space.size

    @cached_property
    def num_shares(self) -> int:
        """The number of shares that are tried; 1 where devices are in one piece."""
        return len(self.problem.shares)

    def cuts(self, stages: Indices) -> Indices:
        """The inner cuts of stages."""
        return stages if self.num_shares == 1 else stages % self.size

    def stages(self, rows: Indices, first: int = 0) -> SuffixStages:
        """What the stages of partitions take; the last column of `rows` is the cut behind them."""
        cuts, problem = self.cuts(rows), self.problem
        pairs = [self._seconds(rows, cuts, s, first + s) for s in range(cuts.shape[1] - 1)]
        forward_s, backward_s = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        boundary_s = [problem.boundary_s(first + s - 1)[cuts[:, s]] for s in range(len(pairs))]
        if self.problem.stores_beside_compute:
            return SuffixStages(forward_s, backward_s, boundary_s)
        chunks = [self._chunks(cuts, s, first + s) for s in range(len(pairs))]
        boundary_s = [
            np.where(chunk > 1, chunk * problem.hop_s(first + s - 1)[cuts[:, s]], boundary_s[s])
            for s, chunk in enumerate(chunks)
        ]
        return SuffixStages(forward_s, backward_s, boundary_s, chunks)

    def _seconds(self, rows: Indices, cuts: Indices, column: int, stage: int) -> tuple[Array, Array]:
        """Forward and backward of the stages in a column."""
        inner, outer = cuts[:, column], cuts[:, column + 1]
        if self.num_shares == 1:
            return self.problem.forward_s(inner, outer, stage), self.problem.backward_s(inner, outer, stage)
        pairs = [self.problem.split_s(inner, outer, stage, share) for share in range(self.num_shares)]
        numbers = rows[:, column] // self.size
        return np.choose(numbers, [pair[0] for pair in pairs]), np.choose(numbers, [pair[1] for pair in pairs])

    def _chunks(self, cuts: Indices, column: int, stage: int) -> Array:
        """In how many chunks the transfers go to the stages in a column; 1 to the first, of which nothing is known."""
        costs = self.problem.costs
        if column == 0 or not stage:
            return np.ones(len(cuts))
        before, inner, outer = cuts[:, column - 1], cuts[:, column], cuts[:, column + 1]
        streams = costs.streams(before, inner) & costs.streams(inner, outer) & costs.crossed(inner)
        return np.where(streams, float(costs.boundaries[stage - 1].chunks), 1.0)

    def moves(self) -> Iterator[Callable[[Indices], Indices]]:
        """Every way to change one cut, or one share: from a partition to all that it can become."""
        for place in range(1, self.problem.num_stages):
            yield partial(self._other_cuts, place)
        if self.num_shares > 1:
            for place in range(self.problem.num_stages):
                yield partial(self._other_shares, place)

    def _other_cuts(self, place: int, stages: Indices) -> Indices:
        """[options, stages] a partition with the inner cut of one stage anywhere between its neighbours."""
        space, cuts = self.problem.costs.space, self.cuts(stages)
        low, high = cuts[place - 1], cuts[place + 1] if place + 1 < len(cuts) else self.size - 1
        every = np.arange(space.size)
        between = space.inside(every, np.array([high])) & space.inside(np.array([low]), every)
        options = np.flatnonzero(between)
        moved = np.repeat(stages[None, :], len(options), axis=0)
        moved[:, place] = options + (stages[place] - cuts[place])
        return moved

    def _other_shares(self, place: int, stages: Indices) -> Indices:
        """[options, stages] a partition with any share on one stage."""
        moved = np.repeat(stages[None, :], self.num_shares, axis=0)
        moved[:, place] = self.cuts(stages)[place] + self.size * np.arange(self.num_shares)
        return moved

    def result(self, stages: Indices, value_s: float) -> PartitionResult:
        """A whole partition, without the cut behind its last stage, as an answer."""
        cuts = (*(int(cut) for cut in self.cuts(stages)[1:]), self.size - 1)
        if self.num_shares == 1:
            return PartitionResult(cuts, value_s)
        rows = np.append(stages, self.size - 1)[None, :]
        whole = self.cuts(rows)
        shares = []
        for s, number in enumerate(stages // self.size):
            inner, outer = whole[:, s], whole[:, s + 1]
            shares.append(float(self.problem.part(inner, outer, s, int(number))[0]))
        return PartitionResult(cuts, value_s, tuple(shares))
