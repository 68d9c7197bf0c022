"""The partition with the least simulated step time, by branch and bound from the last stage back.

A node fixes the last stages. Its bound is the largest of: the replay of those stages with arrivals as early as they
can be; and, over the best division of the rest, the load and turn bounds of `bapipe.bounds`. Nodes are expanded many
at a time, deepest first, so that the work is done in arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from bapipe.bounds import FrontBounds, divided, front_bounds, load_bound_s
from bapipe.cuts import Array, Indices
from bapipe.formulations.base import TOLERANCE, OutOfTimeError, PartitionProblem, PartitionResult, Stop
from bapipe.formulations.lowered_replay import LoweredReplay
from bapipe.formulations.partition_rows import PartitionRows
from bapipe.formulations.suffix_replay import SuffixReplay, SuffixTimes, Upstream

NODES = 256
"""Nodes expanded at once."""

CHILDREN = 4096
"""Partitions replayed at once."""

TRIALS = 8
"""Moves of a cut that are simulated, best bound first, where the replay is only a bound."""

OnIncumbent = Callable[[PartitionResult], None]

Judge = Callable[[PartitionResult], float]
"""The step time of a whole partition, simulated; infinity where it does not fit or cannot be executed."""


@dataclass
class StepTimeSearch:
    """Branch and bound over the partitions of one problem, and over the shares of split devices.

    `incumbent_s` is what must be beaten, `lower_bound_s` what is proven of this problem so far. `on_incumbent` is told
    of every partition that beats it, `on_bound` of the bound as it rises. `judge`: the true step time, where the replay
    of whole partitions is but a bound.

    Nodes and partitions are rows of stages, as in `PartitionRows`; those of a node start with the cut behind the last.
    """

    problem: PartitionProblem
    stop: Stop
    incumbent_s: float = float("inf")
    on_incumbent: OnIncumbent = lambda result: None
    lower_bound_s: float = 0.0
    on_bound: Callable[[float], None] = lambda bound: None
    judge: Judge | None = None
    best: PartitionResult | None = None
    _front: FrontBounds = field(init=False)

    def __post_init__(self) -> None:
        problem = self.problem
        self._rows = PartitionRows(problem)
        self._replay: SuffixReplay | LoweredReplay = LoweredReplay(problem)
        if problem.stores_beside_compute:
            self._replay = SuffixReplay(
                problem.schedule, problem.num_stages, problem.num_microbatches, problem.costs.training
            )

    def evaluate(self, stages: Indices, outer: Indices) -> Array:
        """[partitions] step times of whole partitions, or bounds on them where there is a `judge`; infinity where one
        does not fit. `stages`: [partitions, stages]; `outer`: the cut behind the last, all layers.
        """
        count = self.problem.num_stages
        rows = np.concatenate([stages, outer[:, None]], axis=1)
        cuts = self._rows.cuts(rows)
        fits = np.ones(len(cuts), dtype=np.bool_)
        for stage in range(count):
            fits &= self.problem.fits(cuts[:, stage], cuts[:, stage + 1], count - 1 - stage)
        result = np.full(len(cuts), np.inf)
        if fits.any():
            result[fits] = self._makespan(cuts[fits], self._replay.run(self._rows.stages(rows[fits]), None))
        return result

    def offer(self, result: PartitionResult) -> None:
        """Takes a partition as the incumbent when it is better by more than the tolerance."""
        if result.value_s < self.incumbent_s * (1 - TOLERANCE):
            self.incumbent_s, self.best = result.value_s, result
            self.on_incumbent(result)

    def improve(self, cuts: tuple[int, ...]) -> None:
        """Coordinate descent from a partition: each cut, and share, in turn goes where the step time is least."""
        current = np.array([0, *cuts[:-1]], dtype=np.intp)
        value = self._least(current[None, :], np.inf)[1]
        improved = True
        while improved:
            improved = False
            for options in self._rows.moves():
                row, moved_s = self._least(options(current), value)
                if row is not None and moved_s < value * (1 - TOLERANCE):
                    current, value, improved = row, moved_s, True

    def _least(self, options: Indices, below_s: float) -> tuple[Indices | None, float]:
        """The best of some partitions that is better than `below_s`, and its step time."""
        best, best_s = None, below_s
        for start in range(0, len(options), CHILDREN):
            if self.stop():
                raise OutOfTimeError
            part = options[start : start + CHILDREN]
            values = self.evaluate(part, np.full(len(part), self._rows.size - 1))
            for row in np.argsort(values, kind="stable")[: 1 if self.judge is None else TRIALS]:
                if not values[row] < best_s:
                    break
                value_s = self._offered(part[row], float(values[row]))
                if value_s < best_s:
                    best, best_s = part[row], value_s
        return best, best_s

    def _offered(self, stages: Indices, value_s: float) -> float:
        """The true step time of a whole partition, which is offered."""
        result = self._rows.result(stages, value_s)
        if self.judge is not None:
            result = replace(result, value_s=self.judge(result))
        self.offer(result)
        return result.value_s

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
        root = np.array([[self._rows.size - 1]], dtype=np.intp)
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
        parents, stages, cheap = self._children(self._rows.cuts(nodes[:, -1]), bounds, stage)
        order = np.argsort(cheap, kind="stable")
        for start in range(0, len(order), CHILDREN):
            part = order[start : start + CHILDREN]
            part = part[cheap[part] < self._threshold(gap)]
            if not len(part):
                break
            children = np.concatenate([nodes[parents[part]], stages[part][:, None]], axis=1)
            exact = np.maximum(cheap[part], self._bound(children, stage))
            keep = exact < self._threshold(gap)
            if stage == 0:
                self._take_leaves(children[keep], exact[keep], gap)
            elif keep.any():
                _push(pools, depth, children[keep], exact[keep])
            if self.stop():
                _push(pools, depth - 1, nodes, bounds)
                raise OutOfTimeError

    def _children(self, outer: Indices, bounds: Array, stage: int) -> tuple[Indices, Indices, Array]:
        """(parent row, stage, cheap bound) of every way to put one more stage, number `stage`, in front of nodes."""
        space = self.problem.costs.space
        candidates = np.flatnonzero(self._front.load_s[stage] < self._threshold(0.0))
        if not len(candidates):
            return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
        row, column = candidates[:, None], outer[None, :]
        allowed = space.inside(row, column) & self.problem.fits(row, column, self.problem.num_stages - 1 - stage)
        found = []
        for share in range(self._rows.num_shares):
            load = load_bound_s(self.problem, self._front.fronts[stage], row, column, stage, share)
            cheap = np.maximum(np.maximum(load, self._front.load_s[stage][row]), bounds[None, :])
            cheap[~allowed] = np.inf
            rows, columns = np.nonzero(cheap < self._threshold(0.0))
            found.append((columns, candidates[rows] + share * self._rows.size, cheap[rows, columns]))
        parents, stages, bound = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return parents, stages, bound

    def _bound(self, nodes: Indices, stage: int) -> Array:
        """[nodes] replay bound, and for whole partitions the step time; the last column is the first stage."""
        rows = nodes[:, ::-1]
        cuts = self._rows.cuts(rows)
        stages = self._rows.stages(rows, first=stage)
        if stage == 0:
            return self._makespan(cuts, self._replay.run(stages, None))
        upstream = self._upstream(cuts[:, 0], stage)
        times = self._replay.run(stages, upstream)
        return np.maximum(self._makespan(cuts, times, stage), self._behind_bound(cuts[:, 0], stage, times))

    def _behind_bound(self, cut: Indices, stage: int, times: SuffixTimes) -> Array:
        """[nodes] what the stages in front still have to do when the backwards reach them."""
        if not self.problem.costs.training:
            return np.zeros(len(cut))
        way_back = self._front.fronts[stage].tail_s[cut] + self.problem.hop_s(stage - 1)[cut]
        turn = times.backward_end_s[0] + self._front.turn_s[stage][cut]
        return np.maximum(times.backward_end_s[-1], turn) + way_back

    def _upstream(self, cut: Indices, stage: int) -> Upstream:
        return Upstream(
            first_arrival_s=self._front.fronts[stage].lead_s[cut] + self.problem.hop_s(stage - 1)[cut],
            spacing_s=np.maximum(self._front.spacing_s[stage][cut], self.problem.boundary_s(stage - 1)[cut]),
            round_trips=self._round_trips(cut, stage) if self.problem.costs.training else [],
        )

    def _round_trips(self, cut: Indices, stage: int) -> list[tuple[int, Array]]:
        """For each stage in front of `stage`: how many micro-batches it lets in flight, and the least seconds from the
        cut back to it and forth again. Any better partition has at most a share of the work in front of it.
        """
        problem, work = self.problem, self.problem.costs.work_s[cut]
        last = problem.hop_s(stage - 1)[cut]
        trips = []
        for front in range(stage):
            most = divided(self.incumbent_s, front, problem.num_microbatches, problem.fraction) if front else 0.0
            way = last + self._front.fronts[stage].hops_s[cut] if front == 0 else last
            seconds = problem.fraction * np.maximum(work - most, 0.0) + 2 * way
            trips.append((problem.in_flight(problem.num_stages - 1 - front), seconds))
        return trips

    def _makespan(self, cuts: Indices, times: SuffixTimes, first: int = 0) -> Array:
        ends = [
            end + self.problem.optimizer_s(cuts[:, s], cuts[:, s + 1], first + s)
            for s, end in enumerate(times.device_end_s)
        ]
        return np.asarray(np.max(ends, axis=0))

    def _take_leaves(self, nodes: Indices, values: Array, gap: float) -> None:
        """Offers the best of whole partitions; with a judge, each whose bound is good enough."""
        for row in np.argsort(values, kind="stable")[: 1 if self.judge is None else None]:
            if values[row] >= self._threshold(gap):
                return
            self._offered(nodes[row, :0:-1], float(values[row]))
            if self.judge is not None and self.stop():
                return


def _split(bounds: Array) -> tuple[Indices, Indices]:
    order = np.argsort(bounds, kind="stable")
    return order[:NODES], order[NODES:]


def _push(pools: dict[int, tuple[Indices, Array]], depth: int, nodes: Indices, bounds: Array) -> None:
    if depth in pools:
        nodes = np.concatenate([pools[depth][0], nodes])
        bounds = np.concatenate([pools[depth][1], bounds])
    pools[depth] = (nodes, bounds)
