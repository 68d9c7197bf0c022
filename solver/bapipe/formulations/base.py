"""One candidate's partition over cuts: what the methods that work on cuts are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bapipe.cost.cut_costs import Boundary, CutCosts
from bapipe.cost.memory import usable_bytes
from bapipe.cuts import Array, Indices, Mask
from bapipe.formulations.exchanges import exchanges
from bapipe.formulations.shares import balanced_share
from bapipe.no_flush import resident_microbatches
from bapipe.problem import Communication, ScheduleName
from bapipe.schedules import FAMILIES, in_flight
from bapipe.schedules.forward_backward import FIXED_SHARES

TOLERANCE = 1e-9
"""Relative: two objectives closer than this are equal, and a proof is one to within it."""

Stop = Callable[[], bool]


class OutOfTimeError(Exception):
    """Raised inside a formulation when it must stop; what it has found is kept."""


@dataclass(frozen=True)
class PartitionProblem:
    """Split a model into `num_stages` stages, stage s on the device at position s, under one schedule."""

    costs: CutCosts
    schedule: ScheduleName
    num_microbatches: int
    num_stages: int
    communication: Communication

    def below(self, peak_bytes: float) -> PartitionProblem:
        """The same problem where every device must also stay below `peak_bytes`, its reserve counted."""
        caps = [peak_bytes * (1 - TOLERANCE) - reserve for reserve in self.costs.reserve_bytes]
        limits = tuple(map(min, self.costs.limit_bytes, caps))
        return replace(self, costs=replace(self.costs, limit_bytes=limits))

    def without_tables(self) -> PartitionProblem:
        """The same problem where a stage takes no more than its layers do by themselves: what it takes at least."""
        known = {id(place): replace(place, stage_s=None) for place in self.costs.places}
        places = tuple(known[id(place)] for place in self.costs.places)
        return replace(self, costs=replace(self.costs, places=places))

    @property
    def engines(self) -> int:
        """2 where every device is split into one for forwards and one for backwards."""
        return FAMILIES[self.schedule].engines

    @property
    def fraction(self) -> float:
        """The least part of an operation after which the stage behind, or in front, may start: 1 over the chunks."""
        return 1 / max((boundary.chunks for boundary in self._boundaries), default=1)

    @property
    def stores_beside_compute(self) -> bool:
        """Whether tensors are stored and forwarded beside the compute of devices in one piece."""
        return self.engines == 1 and all(boundary.manner == "overlapped" for boundary in self._boundaries)

    @property
    def _boundaries(self) -> tuple[Boundary, ...]:
        return self.costs.boundaries[: self.num_stages - 1]

    def in_flight(self, from_back: int) -> int:
        """Micro-batches in flight at most on the stage with so many stages behind it."""
        stage = self.num_stages - 1 - from_back
        return in_flight(self.schedule, stage, self.num_stages, self.num_microbatches, training=self.costs.training)

    def memory_bytes(self, inner: Indices, outer: Indices, from_back: int) -> Array:
        """Peak bytes of the stages between cuts, which broadcast; their device's reserve is not counted."""
        if not self.costs.training or FAMILIES[self.schedule].versions is None:
            return self.costs.memory_bytes(inner, outer, self.in_flight(from_back), self.num_microbatches)
        versions = self.in_flight(from_back)
        older = (versions - 1) * _between(self.costs.parameter_bytes, inner, outer)
        count = resident_microbatches(versions, self.num_microbatches)
        return older + self.costs.memory_bytes(inner, outer, versions, count)

    def fits(self, inner: Indices, outer: Indices, from_back: int) -> Mask:
        """Whether the stages between cuts, which broadcast, fit their device."""
        limit = self.costs.limit_bytes[self.num_stages - 1 - from_back]
        if np.isinf(limit):
            return self.in_place(inner, outer, from_back)
        fitting = np.asarray(self.memory_bytes(inner, outer, from_back) <= usable_bytes(limit), dtype=np.bool_)
        return fitting & self.in_place(inner, outer, from_back) if self.costs.pinned else fitting

    def in_place(self, inner: Indices, outer: Indices, from_back: int) -> Mask:
        """Whether the stages between cuts hold those layers that are pinned to their device, and no others' of them."""
        place = self.num_stages - 1 - from_back
        allowed = np.ones(np.broadcast_shapes(inner.shape, outer.shape), dtype=np.bool_)
        for position, device in self.costs.pinned:
            allowed &= self.costs.holds((position,), inner, outer) == (device == place)
        return allowed

    def forward_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Forward seconds of a stage between cuts, which broadcast, on the whole of its device."""
        table = self._stage_s(stage)
        return _between(self.costs.places[stage].forward_s, inner, outer) if table is None else table[0][inner, outer]

    def backward_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Backward seconds of a stage between cuts, on the whole of its device."""
        table = self._stage_s(stage)
        return _between(self.costs.places[stage].backward_s, inner, outer) if table is None else table[1][inner, outer]

    def work_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Forward and backward seconds of a stage between cuts, on the whole of its device."""
        if self._stage_s(stage) is not None:
            return self.forward_s(inner, outer, stage) + self.backward_s(inner, outer, stage)
        return _between(self.costs.places[stage].work_s, inner, outer)

    def _stage_s(self, stage: int) -> tuple[Array, Array] | None:
        """[inner, outer] seconds of the stages of an undivided device whose stages take more than their layers do."""
        known = self.costs.places[stage].stage_s
        if known is None or self.engines > 1:
            return None
        return known(self.in_flight(self.num_stages - 1 - stage), None)

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Of split devices, the parts that are tried for the forward engine of each stage. None: balanced, F / (F + B);
        not on FPGAs that are costed by shape, whose F and B are no sums.
        """
        if self.engines == 1:
            return (None,)
        return FIXED_SHARES if self.costs.by_shape else (None, *FIXED_SHARES)

    def part(self, inner: Indices, outer: Indices, stage: int, share: int) -> Array:
        """The part of a split device that share number `share` gives to the forward engine of a stage between cuts."""
        fixed = self.shares[share]
        if fixed is not None:
            return np.full(np.broadcast_shapes(inner.shape, outer.shape), fixed)
        return balanced_share(self.forward_s(inner, outer, stage), self.backward_s(inner, outer, stage))

    def split_s(self, inner: Indices, outer: Indices, stage: int, share: int) -> tuple[Array, Array]:
        """Seconds of a forward and of a backward of a stage between cuts, each on its part of a split device."""
        known, fixed = self.costs.places[stage].stage_s, self.shares[share]
        if known is not None and fixed is not None:
            forward, backward = known(self.in_flight(self.num_stages - 1 - stage), fixed)
            return forward[inner, outer], backward[inner, outer]
        part = self.part(inner, outer, stage, share)
        return self.forward_s(inner, outer, stage) / part, self.backward_s(inner, outer, stage) / (1 - part)

    def optimizer_s(self, inner: Indices, outer: Indices, stage: int) -> Array:
        """Seconds of the optimizer step of a stage between cuts."""
        return _between(self.costs.places[stage].optimizer_s, inner, outer)

    def boundary_s(self, position: int) -> Array:
        """[cuts] one-way transfer seconds over the boundary behind the device at `position`; zeros at the ends."""
        if 0 <= position < self.num_stages - 1:
            return self.costs.boundaries[position].transfer_s
        return np.zeros(self.costs.space.size)

    def hop_s(self, position: int) -> Array:
        """[cuts] least one-way seconds between what one device does and what the next does with it: those of a chunk
        over the boundary behind the device at `position`; zeros at the ends.
        """
        if 0 <= position < self.num_stages - 1:
            return self.costs.boundaries[position].chunk_s
        return np.zeros(self.costs.space.size)

    def fraction_behind(self, position: int) -> float:
        """`fraction` of the boundary behind the device at `position`."""
        return 1 / self.costs.boundaries[position].chunks if 0 <= position < self.num_stages - 1 else 1.0

    def stops(self, position: int) -> int:
        """How often both devices stop for a transfer over the boundary behind the device at `position`."""
        if not 0 <= position < self.num_stages - 1:
            return 0
        manner = self.costs.boundaries[position].manner
        if manner == "overlapped" or manner == "streaming":
            return 0
        return exchanges(
            self.schedule, position, self.num_stages, self.num_microbatches, manner, training=self.costs.training
        )


def _between(sums: Array, inner: Indices, outer: Indices) -> Array:
    return np.asarray(sums[outer] - sums[inner])


@dataclass(frozen=True)
class PartitionResult:
    """Cuts c_1 … c_S, and the objective in seconds that they reach.

    `shares`: of split devices, the part of each that its forward engine has; else empty.
    """

    cuts: tuple[int, ...]
    value_s: float
    shares: tuple[float, ...] = ()
