"""Lower bounds on the step time of a pipeline: undivided devices, one stage each, store-and-forward transfers.

With T = F + B, C one transfer, way_s = Σ_{j<s} C_j, stage s cannot be done before

    Σ_{j<s} T_j + 2·way_s + M·T_s                                        (load bound, any schedule)

for its device does all its work after the first arrival and before the last departure. The link in front of it
carries M transfers each way, between what the first and the last micro-batch do elsewhere:

    Σ_j T_j + 2·way_s + (M-1)·C_{s-1}                                    (link bound, any schedule)

And with at most K_s micro-batches in flight it has done min(K_s, M) forwards when the first backward reaches it:

    that time + (M-1)·B_s + (M - min(K_s, M))·F_s + Σ_{j<=s} B_j + way_s   (turn bound)

The tables hold, for every cut and number of stages in front of it, the least of these over all partitions of that
front. In inference there is no backward: B = 0, and every way counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bapipe.cuts import Array, Indices
from bapipe.formulations.base import PartitionProblem, Stop
from bapipe.formulations.dynamic_program import MinMax, StageValue


def balanced_bound_s(total_s: float, largest_layer_s: float, num_stages: int, num_microbatches: int) -> float:
    """The load bound of the best division of `total_s` of forward and backward, were layers divisible.

    T_s <= (V - Σ_{j<s} T_j) / M for every s gives total <= V·(1 - (1 - 1/M)^S); no stage is less than its largest
    layer.
    """
    shared = 1 - (1 - 1 / num_microbatches) ** num_stages
    return max(total_s / shared, num_microbatches * largest_layer_s)


def load_bound_s(problem: PartitionProblem, way_s: Array | None, inner: Indices, outer: Indices, stage: int) -> Array:
    """The larger of load and link bound of the stage between cuts, which broadcast, with `stage` stages in front of it.

    `way_s`: [cuts] least transfer seconds, one way, over the boundaries between those; None: nothing is known of them.
    """
    costs, count = problem.costs, problem.num_microbatches
    link = problem.boundary_s(stage - 1)[inner]
    both_ways = costs.directions * (link if way_s is None else link + way_s[inner])
    load = count * (costs.work_s[outer] - costs.work_s[inner]) + costs.work_s[inner] + both_ways
    return np.asarray(np.maximum(load, costs.work_s[-1] + both_ways + (count - 1) * link))


@dataclass(frozen=True)
class FrontBounds:
    """[stages in front][cuts] over all partitions of what is inside a cut into so many stages, that fit.

    `way_s`: least transfer seconds, one way, over the boundaries between them. `load_s`: least largest load or link
    bound; `spacing_s`: least largest forward or transfer; `turn_s`: least largest (M-1)·B + (M - K)·F.
    """

    way_s: list[Array]
    load_s: list[Array]
    spacing_s: list[Array]
    turn_s: list[Array]

    @property
    def root_s(self) -> float:
        """Lower bound on the step time over all partitions of the whole model."""
        return float(self.load_s[-1][-1])


def front_bounds(problem: PartitionProblem, stop: Stop, below_s: float) -> FrontBounds:
    """The tables for partitions whose step time is at most `below_s`; infinity where there are none.

    Raises:
        OutOfTimeError: when `stop()` turned true first.
    """
    values = _FrontValues(problem, below_s)
    nothing = np.full(problem.costs.space.size, np.inf)
    nothing[0] = 0.0

    def table(value: StageValue, combine: np.ufunc = np.maximum) -> list[Array]:
        costs = problem.costs
        recursion = MinMax(
            space=costs.space,
            value=value,
            work=costs.work_s,
            toll=np.zeros(costs.space.size),
            usable=np.arange(costs.space.size),
            stop=stop,
            budget=below_s / problem.num_microbatches,
            combine=combine,
        )
        return [nothing, *recursion.tables(problem.num_stages, "front")]

    way_s = table(values.boundary_s, np.add)
    values = _FrontValues(problem, below_s, way_s)
    return FrontBounds(way_s, table(values.load_s), table(values.spacing_s), table(values.turn_s))


@dataclass(frozen=True)
class _FrontValues:
    problem: PartitionProblem
    below_s: float
    way_s: list[Array] | None = None

    def load_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Load and link bound of a stage with so many in front; infinity above `below_s` or where it does not fit."""
        load = load_bound_s(self.problem, None if self.way_s is None else self.way_s[stage], inner, outer, stage)
        allowed = self.problem.fits(inner, outer, self.problem.num_stages - 1 - stage) & (load <= self.below_s)
        return np.where(allowed, load, np.inf)

    def boundary_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Seconds over the boundary in front of a stage."""
        return self._where_allowed(self.problem.boundary_s(stage - 1)[inner], inner, outer, stage)

    def spacing_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Least time between two micro-batches that leave a stage: its forward, or the transfer to it."""
        forward = _between(self.problem.costs.forward_s, inner, outer)
        spacing = np.maximum(forward, self.problem.boundary_s(stage - 1)[inner])
        return self._where_allowed(spacing, inner, outer, stage)

    def turn_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """What a stage has left to do, its first backward aside, when the first backward reaches it."""
        count = self.problem.num_microbatches
        held = min(self.problem.in_flight(self.problem.num_stages - 1 - stage), count)
        forward = _between(self.problem.costs.forward_s, inner, outer)
        backward = _between(self.problem.costs.backward_s, inner, outer)
        return self._where_allowed((count - 1) * backward + (count - held) * forward, inner, outer, stage)

    def _where_allowed(self, value: Array, inner: Indices, outer: Indices, stage: int) -> Array:
        return np.where(self.load_s(inner, outer, stage) < np.inf, value, np.inf)


def _between(sums: Array, inner: Indices, outer: Indices) -> Array:
    return np.asarray(sums[outer] - sums[inner])
