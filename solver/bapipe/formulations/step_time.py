"""The partition with the least simulated step time, by branch and bound from the last stage back.

A node fixes the last stages. Its bound is the largest of: the replay of those stages with arrivals as early as they
can be; and, over the best division of the rest, the load and turn bounds of `bapipe.bounds`. Nodes are expanded many
at a time, deepest first, so that the work is done in arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bapipe.bounds import FrontBounds, front_bounds, load_bound_s
from bapipe.cuts import Array, Indices
from bapipe.formulations.base import TOLERANCE, OutOfTimeError, PartitionProblem, PartitionResult, Stop
from bapipe.formulations.suffix_replay import SuffixReplay, SuffixStages, SuffixTimes, Upstream

NODES = 256
"""Nodes expanded at once."""

CHILDREN = 4096
"""Partitions replayed at once."""

OnIncumbent = Callable[[PartitionResult], None]


@dataclass
class StepTimeSearch:
    """Branch and bound over the partitions of one problem.

    `incumbent_s` is what must be beaten, `lower_bound_s` what is proven of this problem so far. `on_incumbent` is told
    of every partition that beats it, `on_bound` of the bound as it rises.
    """

    problem: PartitionProblem
    stop: Stop
    incumbent_s: float = float("inf")
    on_incumbent: OnIncumbent = lambda result: None
    lower_bound_s: float = 0.0
    on_bound: Callable[[float], None] = lambda bound: None
    best: PartitionResult | None = None
    _front: FrontBounds = field(init=False)

    def __post_init__(self) -> None:
        problem = self.problem
        self._replay = SuffixReplay(
            problem.schedule, problem.num_stages, problem.num_microbatches, problem.costs.training
        )

    def evaluate(self, cuts: Indices) -> Array:
        """[partitions] step times of whole partitions, cuts c_1 … c_S in rows; infinity where one does not fit."""
        count = self.problem.num_stages
        bounds = np.concatenate([np.zeros((len(cuts), 1), dtype=np.intp), cuts], axis=1)
        fits = np.ones(len(cuts), dtype=np.bool_)
        for stage in range(count):
            fits &= self.problem.fits(bounds[:, stage], bounds[:, stage + 1], count - 1 - stage)
        result = np.full(len(cuts), np.inf)
        if fits.any():
            result[fits] = self._makespan(bounds[fits], self._replay.run(self._stages(bounds[fits]), None))
        return result

    def offer(self, cuts: tuple[int, ...], value_s: float) -> None:
        """Takes a partition as the incumbent when it is better by more than the tolerance."""
        if value_s < self.incumbent_s * (1 - TOLERANCE):
            self.incumbent_s = value_s
            self.best = PartitionResult(cuts, value_s)
            self.on_incumbent(self.best)

    def improve(self, cuts: tuple[int, ...]) -> None:
        """Coordinate descent from a partition: each cut in turn goes where the step time is least."""
        current = np.array(cuts, dtype=np.intp)
        value = float(self.evaluate(current[None, :])[0])
        self.offer(tuple(map(int, current)), value)
        improved = True
        while improved:
            improved = False
            for place in range(self.problem.num_stages - 1):
                moved, moved_value = self._best_move(current, place)
                if moved_value < value * (1 - TOLERANCE):
                    current, value, improved = moved, moved_value, True
                    self.offer(tuple(map(int, current)), value)

    def bound(self, gap: float = 0.0) -> float:
        """A lower bound from the tables of the fronts, or what must be beaten where it is higher.

        Raises:
            OutOfTimeError: when `stop()` turned true.
        """
        self._front = front_bounds(self.problem, self.stop, self._threshold(gap))
        self.lower_bound_s = max(self.lower_bound_s, min(self._front.root_s, self._threshold(gap)))
        return self.lower_bound_s

    def prove(self, incumbent_s: float = float("inf"), gap: float = 0.0) -> None:
        """Explores until nothing can beat `incumbent_s` by more than `gap`; `bound` comes first.

        Raises:
            OutOfTimeError: when `stop()` turned true; `lower_bound_s` holds what was proven.
        """
        self.incumbent_s = min(self.incumbent_s, incumbent_s)
        root = np.array([[self.problem.costs.space.size - 1]], dtype=np.intp)
        pools = {0: (root, np.array([self._front.root_s]))}
        while pools:
            depth = max(pools)
            nodes, bounds = pools.pop(depth)
            alive = bounds < self._threshold(gap)
            nodes, bounds = nodes[alive], bounds[alive]
            if not len(nodes):
                continue
            chosen, rest = _split(bounds)
            if len(rest):
                pools[depth] = (nodes[rest], bounds[rest])
            self._raise_bound([bounds, *(pool[1] for pool in pools.values())], gap)
            self._expand(nodes[chosen], bounds[chosen], pools, gap)
        self.lower_bound_s = max(self.lower_bound_s, self._threshold(gap))

    def _raise_bound(self, bounds: list[Array], gap: float) -> None:
        least = min(float(pool.min()) for pool in bounds if len(pool))
        self.lower_bound_s = max(self.lower_bound_s, min(least, self._threshold(gap)))
        self.on_bound(self.lower_bound_s)
        if self.stop():
            raise OutOfTimeError

    def _threshold(self, gap: float) -> float:
        return self.incumbent_s * (1 - max(gap, TOLERANCE))

    def _expand(self, nodes: Indices, bounds: Array, pools: dict[int, tuple[Indices, Array]], gap: float) -> None:
        depth = nodes.shape[1]
        stage = self.problem.num_stages - depth
        parents, cuts, cheap = self._children(nodes[:, -1], bounds, stage)
        order = np.argsort(cheap, kind="stable")
        for start in range(0, len(order), CHILDREN):
            part = order[start : start + CHILDREN]
            part = part[cheap[part] < self._threshold(gap)]
            if not len(part):
                break
            children = np.concatenate([nodes[parents[part]], cuts[part][:, None]], axis=1)
            exact = np.maximum(cheap[part], self._bound(children, stage))
            keep = exact < self._threshold(gap)
            if stage == 0:
                self._take_leaves(children[keep], exact[keep])
            elif keep.any():
                _push(pools, depth, children[keep], exact[keep])
            if self.stop():
                _push(pools, depth - 1, nodes, bounds)
                raise OutOfTimeError

    def _children(self, inner: Indices, bounds: Array, stage: int) -> tuple[Indices, Indices, Array]:
        """(parent row, cut, cheap bound) of every way to put one more stage, number `stage`, in front of nodes."""
        space = self.problem.costs.space
        candidates = np.flatnonzero(self._front.load_s[stage] < self._threshold(0.0))
        if not len(candidates):
            return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
        row, column = candidates[:, None], inner[None, :]
        load = load_bound_s(self.problem, self._front.way_s[stage], row, column, stage)
        cheap = np.maximum(np.maximum(load, self._front.load_s[stage][row]), bounds[None, :])
        allowed = space.inside(row, column) & self.problem.fits(row, column, self.problem.num_stages - 1 - stage)
        cheap[~allowed] = np.inf
        rows, columns = np.nonzero(cheap < self._threshold(0.0))
        return columns, candidates[rows], cheap[rows, columns]

    def _bound(self, nodes: Indices, stage: int) -> Array:
        """[nodes] replay bound, and for whole partitions the step time; the last column is the first cut."""
        cuts = nodes[:, ::-1]
        stages = self._stages(cuts, first=stage)
        if stage == 0:
            return self._makespan(cuts, self._replay.run(stages, None))
        upstream = self._upstream(cuts[:, 0], stage)
        times = self._replay.run(stages, upstream)
        return np.maximum(self._makespan(cuts, times), self._behind_bound(cuts[:, 0], stage, times))

    def _behind_bound(self, cut: Indices, stage: int, times: SuffixTimes) -> Array:
        """[nodes] what the stages in front still have to do when the backwards reach them."""
        costs = self.problem.costs
        if not costs.training:
            return np.zeros(len(cut))
        way_back = costs.backward_s[cut] + self._way_s(cut, stage)
        turn = times.backward_end_s[0] + self._front.turn_s[stage][cut]
        return np.maximum(times.backward_end_s[-1], turn) + way_back

    def _upstream(self, cut: Indices, stage: int) -> Upstream:
        costs = self.problem.costs
        arrival = costs.forward_s[cut] + self._way_s(cut, stage)
        return Upstream(
            first_arrival_s=arrival,
            spacing_s=np.maximum(self._front.spacing_s[stage][cut], self.problem.boundary_s(stage - 1)[cut]),
            round_trips=self._round_trips(cut, stage) if costs.training else [],
        )

    def _round_trips(self, cut: Indices, stage: int) -> list[tuple[int, Array]]:
        """For each stage in front of `stage`: how many micro-batches it lets in flight, and the least seconds from the
        cut back to it and forth again. Any better partition has at most a share of the work in front of it.
        """
        problem, work = self.problem, self.problem.costs.work_s[cut]
        trips = []
        for front in range(stage):
            most = self.incumbent_s * (1 - (1 - 1 / problem.num_microbatches) ** front) if front else 0.0
            way = self._way_s(cut, stage) if front == 0 else problem.boundary_s(stage - 1)[cut]
            trips.append((self._replay.in_flight(front), np.maximum(work - most, 0.0) + 2 * way))
        return trips

    def _way_s(self, cut: Indices, stage: int) -> Array:
        """[nodes] least transfer seconds, one way, from the first device to that of `stage`."""
        return self.problem.boundary_s(stage - 1)[cut] + self._front.way_s[stage][cut]

    def _stages(self, cuts: Indices, first: int = 0) -> SuffixStages:
        costs, count = self.problem.costs, cuts.shape[1] - 1
        return SuffixStages(
            forward_s=[costs.forward_s[cuts[:, s + 1]] - costs.forward_s[cuts[:, s]] for s in range(count)],
            backward_s=[costs.backward_s[cuts[:, s + 1]] - costs.backward_s[cuts[:, s]] for s in range(count)],
            boundary_s=[self.problem.boundary_s(first + s - 1)[cuts[:, s]] for s in range(count)],
        )

    def _makespan(self, cuts: Indices, times: SuffixTimes) -> Array:
        optimizer = self.problem.costs.optimizer_s
        ends = [end + optimizer[cuts[:, s + 1]] - optimizer[cuts[:, s]] for s, end in enumerate(times.device_end_s)]
        return np.asarray(np.max(ends, axis=0))

    def _best_move(self, cuts: Indices, place: int) -> tuple[Indices, float]:
        space = self.problem.costs.space
        low = int(cuts[place - 1]) if place else 0
        high = int(cuts[place + 1])
        every = np.arange(space.size)
        between = space.inside(every, np.array([high])) & space.inside(np.array([low]), every)
        options = np.flatnonzero(between)
        best, best_s = cuts, np.inf
        for start in range(0, len(options), CHILDREN):
            if self.stop():
                raise OutOfTimeError
            part = options[start : start + CHILDREN]
            moved = np.repeat(cuts[None, :], len(part), axis=0)
            moved[:, place] = part
            values = self.evaluate(moved)
            row = int(values.argmin())
            if values[row] < best_s:
                best, best_s = moved[row], float(values[row])
        return best, best_s

    def _take_leaves(self, nodes: Indices, values: Array) -> None:
        if len(values):
            row = int(values.argmin())
            self.offer(tuple(int(cut) for cut in nodes[row, ::-1][1:]), float(values[row]))


def _split(bounds: Array) -> tuple[Indices, Indices]:
    order = np.argsort(bounds, kind="stable")
    return order[:NODES], order[NODES:]


def _push(pools: dict[int, tuple[Indices, Array]], depth: int, nodes: Indices, bounds: Array) -> None:
    if depth in pools:
        nodes = np.concatenate([pools[depth][0], nodes])
        bounds = np.concatenate([pools[depth][1], bounds])
    pools[depth] = (nodes, bounds)
