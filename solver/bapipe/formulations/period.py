"""The partition of least period without a flush, over links that overlap with compute.

Stage s of N keeps N - s micro-batches in flight. Then forwards and backwards go round in cycles: from stage u down to
stage t, and back. Such a round takes the work T = F + B of all its stages, the transfers over the boundaries between
them, both ways, and the update U of stage u, and it brings t - u + 1 micro-batches. Every round is a bound, every other
cycle is made of rounds, so the period of M micro-batches is exactly

    M · max over u <= t of (Σ_{u..t} T_s + 2·Σ_{u..t-1} C_s + U_u) / (t - u + 1)

Whether a pace of λ a micro-batch can be reached is a recursion from the last stage back: with E_s the most that a round
from s exceeds its time,

    E_s = T_s - λ + max(0, 2·C_s + E_{s+1}),     and E_s + U_s <= 0 on every stage.

The less E the better, whatever comes before, so the least E for each cut and number of stages behind it decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bapipe.cuts import Array, Indices, Mask
from bapipe.errors import SolverDisagreementError
from bapipe.formulations.base import TOLERANCE, PartitionProblem, PartitionResult, Stop
from bapipe.formulations.bottleneck import best_partition
from bapipe.formulations.dynamic_program import MinMax

NEAR = 1e-4
"""Relative width down to which the pace is bisected; then each partition found is the next one to beat."""

SLACK = TOLERANCE / 4
"""Relative: by so much a partition has to beat another."""


@dataclass(frozen=True)
class PaceTest(MinMax):
    """The recursion for a pace of `budget` seconds a micro-batch."""

    problem: PartitionProblem | None = None

    def excess_s(self, inner: Indices, outer: Indices, placed: int, behind: Array) -> tuple[Array, Mask]:
        """E of stages between cuts that broadcast, with so many behind them, and whether that is allowed.

        `behind`: E of the stages behind, at `outer`.
        """
        problem = self.problem
        assert problem is not None
        position = problem.num_stages - 1 - placed
        back = problem.boundary_s(position)[outer] * problem.costs.directions + behind
        excess = problem.work_s(inner, outer, position) - self.budget + np.maximum(0.0, back)
        kept = excess + problem.optimizer_s(inner, outer, position) <= self.budget * 1e-15
        return excess, kept & problem.fits(inner, outer, placed) & self.space.inside(inner, outer)

    def _least(self, rows: Indices, columns: Indices, best: Array, placed: int, side: str) -> Array:
        excess, allowed = self.excess_s(rows[:, None], columns[None, :], placed, best[columns][None, :])
        return np.asarray(np.where(allowed, excess, np.inf).min(axis=1))

    def solution(self, tables: list[Array]) -> tuple[int, ...]:
        """Cuts that keep the pace, from the tables of a pace that can be kept."""
        cuts, inner = [], 0
        last = np.full(self.space.size, np.inf)
        last[-1] = 0.0
        for placed in range(len(tables) - 1, -1, -1):
            behind = tables[placed - 1] if placed else last
            columns = np.flatnonzero(behind < np.inf)
            excess, allowed = self.excess_s(np.array([inner]), columns, placed, behind[columns])
            inner = int(columns[int(np.argmin(np.where(allowed, excess, np.inf)))])
            cuts.append(inner)
        return tuple(cuts)


def least_period(
    problem: PartitionProblem,
    judge: Callable[[PartitionResult], float],
    threshold_s: Callable[[], float],
    stop: Stop,
) -> float:
    """Offers ever better partitions to `judge`, which answers with their simulated period, until none is better or the
    rest cannot be below `threshold_s()`. Returns a lower bound of the period over all partitions.

    Raises:
        OutOfTimeError: when `stop()` turned true first.
        SolverDisagreementError: a simulated period is longer than the recursion says.
    """
    count, costs = problem.num_microbatches, problem.costs
    low_s = max(float(costs.work_s[-1]) / problem.num_stages, costs.largest_layer_s)
    first = best_partition(problem, stop)
    if first is None:
        return float("inf")
    low_s, high_s = max(low_s, first.value_s), judge(first) / count
    while low_s < high_s * (1 - SLACK) and low_s * count < threshold_s():
        near = high_s - low_s <= NEAR * high_s
        wanted_s = high_s * (1 - SLACK) if near else (low_s + high_s) / 2
        found = partition_at_pace(problem, wanted_s, stop)
        if found is None:
            low_s = wanted_s
            continue
        value_s = judge(found) / count
        if value_s > wanted_s * (1 + TOLERANCE):
            raise SolverDisagreementError(f"a pace of {wanted_s!r} s is promised, and {value_s!r} s simulated")
        high_s = min(wanted_s, value_s)
    return low_s * count


def partition_at_pace(problem: PartitionProblem, pace_s: float, stop: Stop) -> PartitionResult | None:
    """A partition whose period is at most `pace_s` a micro-batch; None: there is none.

    Raises:
        OutOfTimeError: when `stop()` turned true first.
    """
    costs = problem.costs
    test = PaceTest(
        space=costs.space,
        value=lambda inner, outer, placed: np.zeros(1),
        work=costs.work_s,
        toll=np.zeros(costs.space.size),
        usable=np.arange(costs.space.size),
        stop=stop,
        budget=pace_s,
        problem=problem,
    )
    tables = test.tables(problem.num_stages, "back")
    if not tables[-1][0] < np.inf:
        return None
    return PartitionResult(test.solution(tables), pace_s)
