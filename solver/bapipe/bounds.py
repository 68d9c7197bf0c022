"""Lower bounds on the step time of a pipeline with undivided devices, one stage each, and store-and-forward transfers.

With T = F + B and C one transfer, stage s cannot be done before

    fill + M·T_s + drain,   fill = Σ_{j<s} (F_j + C_j),   drain = Σ_{j<s} (B_j + C_j)        (load bound, any schedule)

and, when at most K_s micro-batches are in flight there, it has done min(K_s, M) forwards when the first backward
reaches it:

    end of the first backward behind it + (M-1)·B_s + (M - min(K_s, M))·F_s + Σ_{j<=s} B_j        (turn bound)

The tables hold, for every cut and number of stages in front of it, the least of these over all partitions of that
front.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bapipe.cost.cut_costs import Array, Indices
from bapipe.formulations.base import PartitionProblem, Stop
from bapipe.formulations.dynamic_program import MinMax, StageValue


def balanced_bound_s(total_s: float, largest_layer_s: float, num_stages: int, num_microbatches: int) -> float:
    """The load bound of the best division of `total_s` of forward and backward, were layers divisible.

    T_s <= (V - Σ_{j<s} T_j) / M for every s gives total <= V·(1 - (1 - 1/M)^S); no stage is less than its largest
    layer.
    """
    shared = 1 - (1 - 1 / num_microbatches) ** num_stages
    return max(total_s / shared, num_microbatches * largest_layer_s)


@dataclass(frozen=True)
class FrontBounds:
    """[stages in front][cuts] over all partitions of what is inside a cut into so many stages, that fit.

    `load_s`: least largest load bound; `forward_s`: least largest forward; `turn_s`: least largest
    (M-1)·B + (M - K)·F; `boundary_s`[stages]: least transfer seconds, one way, over the boundaries between them.
    """

    load_s: list[Array]
    forward_s: list[Array]
    turn_s: list[Array]
    boundary_s: list[float]

    @property
    def root_s(self) -> float:
        """Lower bound on the step time over all partitions of the whole model."""
        return float(self.load_s[-1][-1])


def front_bounds(problem: PartitionProblem, stop: Stop, below_s: float) -> FrontBounds:
    """The tables for partitions whose step time is at most `below_s`."""
    costs = problem.costs
    boundaries = _least_boundaries(problem)
    values = _FrontValues(problem, boundaries, below_s)

    def table(value: StageValue) -> list[Array]:
        recursion = MinMax(
            space=costs.space,
            value=value,
            work=costs.work_s,
            toll=np.zeros(costs.space.size),
            usable=np.arange(costs.space.size),
            stop=stop,
            budget=below_s / problem.num_microbatches,
        )
        nothing = np.full(costs.space.size, np.inf)
        nothing[0] = -np.inf
        return [nothing, *recursion.tables(problem.num_stages, "front")]

    return FrontBounds(table(values.load_s), table(values.forward_s), table(values.turn_s), boundaries)


@dataclass(frozen=True)
class _FrontValues:
    problem: PartitionProblem
    boundaries: list[float]
    below_s: float

    def load_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        costs = self.problem.costs
        work, directions = costs.work_s, costs.directions
        before = work[inner] + directions * (self.problem.boundary_s(stage - 1)[inner] + self.boundaries[stage])
        load = self.problem.num_microbatches * (work[outer][None, :] - work[inner][:, None]) + before[:, None]
        allowed = self.problem.fits(inner, outer, self.problem.num_stages - 1 - stage) & (load <= self.below_s)
        return np.where(allowed, load, np.inf)

    def forward_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        forward = self.problem.costs.forward_s
        return self._where_allowed(forward[outer][None, :] - forward[inner][:, None], inner, outer, stage)

    def turn_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        costs, count = self.problem.costs, self.problem.num_microbatches
        held = min(self.problem.in_flight(self.problem.num_stages - 1 - stage), count)
        forward = costs.forward_s[outer][None, :] - costs.forward_s[inner][:, None]
        backward = costs.backward_s[outer][None, :] - costs.backward_s[inner][:, None]
        return self._where_allowed((count - 1) * backward + (count - held) * forward, inner, outer, stage)

    def _where_allowed(self, value: Array, inner: Indices, outer: Indices, stage: int) -> Array:
        return np.where(self.load_s(inner, outer, stage) < np.inf, value, np.inf)


def _least_boundaries(problem: PartitionProblem) -> list[float]:
    """[stages] Σ over the boundaries between so many first stages of the cheapest cut there."""
    sums = [0.0, 0.0]
    for position in range(problem.num_stages - 1):
        between = problem.costs.transfer_s[position][1:-1]
        sums.append(sums[-1] + (float(between.min()) if len(between) else 0.0))
    return sums
