"""Lower bounds on the step time of a pipeline, one stage a device, whatever the mode of its links.

With T = F + B of a stage on its own device, C one transfer over the boundary behind it, c one of its g chunks (c = C
and g = 1 where tensors are stored and forwarded), stage s cannot be done before

    Σ_{j<s} (F_j/g_j + c_j) + M·T_s + Σ_{j<s} (B_j/g_j + c_j)             (load bound, any order)

for its device does all its work after the first chunk arrives and before the last departs: a stage hands on what it
has made after 1/g of its forward, and has 1/g of its backward left when the last chunk arrives. Over a blocking link
the device also stops for each of its E exchanges: E_{s-1}·C_{s-1} + E_s·C_s in place of the two transfers over the
boundary in front. On a device split into a forward engine with share σ and a backward engine, with a = F_s/σ and
b = B_s/(1 - σ), M·T_s becomes max(M·a + b, a + M·b); that is at least M·T_s for every σ.

The link in front of a stage carries M transfers each way, between what the first and the last micro-batch do elsewhere:

    Σ_j T_j/g + 2·Σ_{j<s-1} c_j + M·C_{s-1} + c_{s-1}                     (link bound, any order)

And with at most K_s micro-batches in flight it has done min(K_s, M) forwards when the first backward reaches it:

    that time + (M-1)·B_s + (M - min(K_s, M))·F_s + Σ_{j<=s} B_j/g_j + Σ_{j<s} c_j     (turn bound; split: no F_s)

The tables hold, for every cut and number of stages in front of it, the least of these over all partitions of that
front. In inference there is no backward: B = 0, and every way counts once. Where devices share a card, tensors are sent
past stages, or copies of parameters are reduced, all of it comes on top of what is counted here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bapipe.cuts import Array, Indices
from bapipe.formulations.base import PartitionProblem, Stop
from bapipe.formulations.dynamic_program import MinMax, StageValue


def balanced_bound_s(
    total_s: float, largest_layer_s: float, num_stages: int, num_microbatches: int, fraction: float = 1.0
) -> float:
    """The load bound of the best division of `total_s` of forward and backward, were layers divisible.

    T_s <= (V - φ·Σ_{j<s} T_j) / M for every s, with φ the least 1/g, gives φ·total <= V·(1 - (1 - φ/M)^S); no stage is
    less than its largest layer.
    """
    return max(total_s / divided(1.0, num_stages, num_microbatches, fraction), num_microbatches * largest_layer_s)


def divided(step_s: float, num_stages: int, num_microbatches: int, fraction: float) -> float:
    """The most work that so many stages can do in a step of `step_s`; see `balanced_bound_s`."""
    return step_s * (1 - (1 - fraction / num_microbatches) ** num_stages) / fraction


@dataclass(frozen=True)
class Front:
    """[cuts] over all partitions of what is inside a cut into so many stages, the boundary at the cut not counted.

    `hops_s`: least Σ c; `lead_s`, `tail_s`: least Σ (F/g + c) and Σ (B/g + c).
    """

    hops_s: Array
    lead_s: Array
    tail_s: Array


def load_bound_s(
    problem: PartitionProblem,
    front: Front | None,
    inner: Indices,
    outer: Indices,
    stage: int,
    share: int | None = None,
) -> Array:
    """The larger of load and link bound of the stage between cuts, which broadcast, with `stage` stages in front of it.

    `front` None: nothing is known of those. `share`: which of the shares a split device has; None: any.
    """
    costs, count = problem.costs, problem.num_microbatches
    hop, link = problem.hop_s(stage - 1)[inner], problem.boundary_s(stage - 1)[inner]
    if front is None:
        around, hops = problem.fraction * costs.work_s[inner], np.zeros(inner.shape)
    else:
        around, hops = (front.lead_s + front.tail_s)[inner], front.hops_s[inner]
    before, behind = problem.stops(stage - 1), problem.stops(stage)
    own = before * link if before else costs.directions * hop
    if behind:
        own = own + behind * problem.boundary_s(stage)[outer]
    load = _work_s(problem, inner, outer, stage, share) + around + own
    through = problem.fraction * costs.work_s[-1] + costs.directions * (hops + hop)
    return np.asarray(np.maximum(load, through + count * link - hop))


def _work_s(problem: PartitionProblem, inner: Indices, outer: Indices, stage: int, share: int | None) -> Array:
    """Seconds in which the device of a stage does all its work, from its first start on."""
    count = problem.num_microbatches
    if problem.engines == 1:
        return np.asarray(count * problem.work_s(inner, outer, stage))
    wanted = range(len(problem.shares)) if share is None else (share,)
    pairs = [problem.split_s(inner, outer, stage, each) for each in wanted]
    return np.asarray(np.min([np.maximum(count * a + b, a + count * b) for a, b in pairs], axis=0))


@dataclass(frozen=True)
class FrontBounds:
    """[stages in front][cuts] over all partitions of what is inside a cut into so many stages, that fit.

    `load_s`: least largest load or link bound; `spacing_s`: least largest time between two micro-batches that leave a
    stage; `turn_s`: least largest (M-1)·B + (M - K)·F.
    """

    fronts: list[Front]
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

    values = _FrontValues(problem, below_s)
    hops_s = table(values.hop_s, np.add)
    if problem.stores_beside_compute and problem.costs.uniform:
        forward_s, backward_s = problem.costs.forward_s, problem.costs.backward_s
        lead_s, tail_s = [hops + forward_s for hops in hops_s], [hops + backward_s for hops in hops_s]
    else:
        lead_s, tail_s = table(values.lead_s, np.add), table(values.tail_s, np.add)
    if not problem.costs.training:
        tail_s = [np.zeros(problem.costs.space.size)] * len(hops_s)
    fronts = [Front(*each) for each in zip(hops_s, lead_s, tail_s, strict=True)]
    values = _FrontValues(problem, below_s, fronts)
    return FrontBounds(fronts, table(values.load_s), table(values.spacing_s), table(values.turn_s))


@dataclass(frozen=True)
class _FrontValues:
    problem: PartitionProblem
    below_s: float
    fronts: list[Front] | None = None

    def load_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Load and link bound of a stage with so many in front; infinity above `below_s` or where it does not fit."""
        front = None if self.fronts is None else self.fronts[stage]
        load = load_bound_s(self.problem, front, inner, outer, stage)
        allowed = self.problem.fits(inner, outer, self.problem.num_stages - 1 - stage) & (load <= self.below_s)
        return np.where(allowed, load, np.inf)

    def hop_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Seconds of a chunk over the boundary in front of a stage."""
        return self._where_allowed(self.problem.hop_s(stage - 1)[inner], inner, outer, stage)

    def lead_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """From the first chunk of a stage's input to the first of its output."""
        return self._passed_s(self.problem.forward_s(inner, outer, stage), inner, outer, stage)

    def tail_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """From the last chunk of a stage's gradient to the last of what it sends on."""
        return self._passed_s(self.problem.backward_s(inner, outer, stage), inner, outer, stage)

    def _passed_s(self, seconds: Array, inner: Indices, outer: Indices, stage: int) -> Array:
        problem = self.problem
        streams = problem.costs.streams(inner, outer)
        part = np.where(streams, problem.fraction_behind(stage), 1.0) * seconds
        hop = np.where(streams, problem.hop_s(stage - 1)[inner], problem.boundary_s(stage - 1)[inner])
        return self._where_allowed(hop + part, inner, outer, stage)

    def spacing_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Least time between two micro-batches that leave a stage: its forward, with what a blocking link adds to it,
        or the transfer to it.
        """
        problem = self.problem
        link = problem.boundary_s(stage - 1)[inner]
        forward = problem.forward_s(inner, outer, stage) + (link if problem.stops(stage - 1) else 0.0)
        if problem.stops(stage):
            forward = forward + problem.boundary_s(stage)[outer]
        return self._where_allowed(np.maximum(forward, link), inner, outer, stage)

    def turn_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """What a stage has left to do, its first backward aside, when the first backward reaches it."""
        problem, count = self.problem, self.problem.num_microbatches
        held = min(problem.in_flight(problem.num_stages - 1 - stage), count) if problem.engines == 1 else count
        forward, backward = problem.forward_s(inner, outer, stage), problem.backward_s(inner, outer, stage)
        return self._where_allowed((count - 1) * backward + (count - held) * forward, inner, outer, stage)

    def _where_allowed(self, value: Array, inner: Indices, outer: Indices, stage: int) -> Array:
        return np.where(self.load_s(inner, outer, stage) < np.inf, value, np.inf)
