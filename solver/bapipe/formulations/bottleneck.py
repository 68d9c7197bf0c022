"""The partition whose most loaded stage is least loaded, within memory: a planning model of a saturated pipeline.

Load of a stage, per micro-batch: compute (`none`), the larger of compute and all its transfers (`overlap`), or their
sum (`serial`); a tensor crosses a cut forward, and in training its gradient crosses back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bapipe.candidates import Candidate
from bapipe.cuts import Array, Indices
from bapipe.formulations.base import TOLERANCE, PartitionProblem, PartitionResult, Stop
from bapipe.formulations.dynamic_program import MinMax, StageValue, first_solution
from bapipe.formulations.problem import BottleneckProblem, Partition
from bapipe.formulations.protocol import Listener

SLACK = 1e-12
"""Relative slack when an optimum is used as a limit, for sums taken in another order."""

COARSE = 400
"""A chain of many more cuts is first solved over about so many of them, for an upper bound."""


@dataclass(frozen=True)
class StageLoads:
    """Loads and memory of the stages of `problem`, as the values of the recursion from the back."""

    problem: PartitionProblem
    budget_s: float = float("inf")

    def load_s(self, inner: Indices, outer: Indices, from_back: int) -> Array:
        """Load of the stages between cuts; infinity over the budget, or where a stage does not fit its device."""
        problem = self.problem
        position = problem.num_stages - 1 - from_back
        load = problem.work_s(inner, outer, position)
        if problem.communication != "none":
            traffic = self.traffic_s(position - 1)[inner] + self.traffic_s(position)[outer]
            load = load + traffic if problem.communication == "serial" else np.maximum(load, traffic)
        allowed = problem.fits(inner, outer, from_back) & (load <= self.budget_s)
        return np.where(allowed, load, np.inf)

    def memory_bytes(self, inner: Indices, outer: Indices, from_back: int) -> Array:
        """Peak bytes of the stages between cuts; infinity where `load_s` is."""
        allowed = self.load_s(inner, outer, from_back) < np.inf
        return np.where(allowed, self.problem.memory_bytes(inner, outer, from_back), np.inf)

    def traffic_s(self, position: int) -> Array:
        """[cuts] seconds of all that crosses the boundary behind a device for one micro-batch."""
        return np.asarray(self.problem.boundary_s(position) * self.problem.costs.directions)

    def toll_s(self) -> Array:
        """[cuts] least that a cut adds to the load of the stages on either side of it, wherever it is."""
        boundaries = range(self.problem.num_stages - 1)
        if self.problem.communication != "serial" or not boundaries:
            return np.zeros(self.problem.costs.space.size)
        return np.asarray(np.min([self.traffic_s(position) for position in boundaries], axis=0))


@dataclass(frozen=True)
class DynamicProgram:
    """The bottleneck optimum by dynamic programming over the cuts of the problem, a candidate at a time."""

    name: str = "dp"
    tolerance: float = TOLERANCE
    works_on_graph: bool = False

    def solve(self, problem: BottleneckProblem, listener: Listener) -> bool:
        """Offers the optimum of each candidate, least bound first, until none is left that could be better.

        Raises:
            OutOfTimeError: the time is up.
        """
        offer_best(problem, listener, listener.bound)
        return True


def offer_best(
    problem: BottleneckProblem, listener: Listener, on_bound: Callable[[float], None] = lambda bound_s: None
) -> None:
    """Offers the best partitions over the cuts of `problem`. Where those are all that are allowed, what `on_bound` is
    told is a bound over all partitions.

    Raises:
        OutOfTimeError: the time is up.
    """
    queue = [(problem.bound_s(c), order, c) for order, c in enumerate(problem.undominated)]
    heapq.heapify(queue)
    while queue and queue[0][0] < listener.threshold_s:
        bound_s, _, candidate = heapq.heappop(queue)
        on_bound(bound_s)
        found = best_partition(partition_problem(problem, candidate), listener.stop)
        if found is not None:
            claimed_s = found.value_s * candidate.num_microbatches
            listener.offer(Partition(candidate, problem.space.stages_of(found.cuts)), claimed_s, claimed_s)


def partition_problem(problem: BottleneckProblem, candidate: Candidate) -> PartitionProblem:
    """The problem of one candidate over the cuts."""
    return PartitionProblem(
        problem.cut_costs(candidate.microbatch_size),
        candidate.schedule,
        candidate.num_microbatches,
        candidate.num_devices,
        problem.request.communication,
    )


def best_partition(problem: PartitionProblem, stop: Stop) -> PartitionResult | None:
    """The partition into exactly `problem.num_stages` stages whose largest load is least, or None where nothing fits.

    Of several, that of least peak memory, then the first cuts.

    Raises:
        OutOfTimeError: when `stop()` turned true first.
    """
    value_s = _least_load_s(problem, stop)
    if value_s is None:
        return None
    loads = StageLoads(problem, value_s * (1 + SLACK))
    recursion = _recursion(loads, loads.memory_bytes, np.arange(problem.costs.space.size), stop)
    tables = recursion.tables(problem.num_stages, "back")
    target = tables[-1][0] * (1 + SLACK)
    return PartitionResult(first_solution(recursion, tables, target), value_s)


def _least_load_s(problem: PartitionProblem, stop: Stop) -> float | None:
    best = float("inf")
    for usable in _refinements(problem):
        loads = StageLoads(problem, best * (1 + SLACK))
        tables = _recursion(loads, loads.load_s, usable, stop).tables(problem.num_stages, "back")
        best = min(best, float(tables[-1][0]))
    return None if np.isinf(best) else best


def least_peak_bytes(problem: PartitionProblem, stop: Stop) -> float:
    """The least peak bytes of the fullest device, its reserve counted, over all partitions along the chain.

    Raises:
        OutOfTimeError: when `stop()` turned true first.
    """

    def peak(inner: Indices, outer: Indices, from_back: int) -> Array:
        reserve = problem.costs.reserve_bytes[problem.num_stages - 1 - from_back]
        needed = problem.memory_bytes(inner, outer, from_back) + reserve
        return np.where(problem.in_place(inner, outer, from_back), needed, np.inf)

    chain = problem.costs.space.chain
    loads = StageLoads(problem)
    return float(_recursion(loads, peak, chain, stop).tables(problem.num_stages, "back")[-1][0])


def _refinements(problem: PartitionProblem) -> list[Indices]:
    """Ever larger choices of cuts, the last one all: each optimum is the budget of the next."""
    space = problem.costs.space
    chain = space.chain
    steps = []
    if len(chain) > 2 * COARSE:
        spread = np.linspace(0, len(chain) - 1, COARSE).astype(int)
        steps.append(chain[spread])
    if len(chain) < space.size:
        steps.append(chain)
    return [*steps, np.arange(space.size)]


def _recursion(loads: StageLoads, value: StageValue, usable: Indices, stop: Stop) -> MinMax:
    costs = loads.problem.costs
    return MinMax(costs.space, value, costs.work_s, loads.toll_s(), usable, stop, loads.budget_s)
