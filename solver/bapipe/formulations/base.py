"""One candidate's partition over cuts: what the methods that work on cuts are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bapipe.cost.cut_costs import CutCosts
from bapipe.cost.memory import usable_bytes
from bapipe.cuts import Array, Indices, Mask
from bapipe.problem import Communication, ScheduleName
from bapipe.schedules import in_flight

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
        """The same problem where every device must also stay below `peak_bytes`, its reserve not counted."""
        cap = peak_bytes * (1 - TOLERANCE)
        limits = tuple(min(limit, cap) for limit in self.costs.limit_bytes)
        return replace(self, costs=replace(self.costs, limit_bytes=limits))

    def in_flight(self, from_back: int) -> int:
        """Micro-batches in flight at most on the stage with so many stages behind it."""
        stage = self.num_stages - 1 - from_back
        return in_flight(self.schedule, stage, self.num_stages, self.num_microbatches, training=self.costs.training)

    def memory_bytes(self, inner: Indices, outer: Indices, from_back: int) -> Array:
        """Peak bytes of the stages between cuts, which broadcast; their device's reserve is not counted."""
        return self.costs.memory_bytes(inner, outer, self.in_flight(from_back), self.num_microbatches)

    def fits(self, inner: Indices, outer: Indices, from_back: int) -> Mask:
        """Whether the stages between cuts, which broadcast, fit their device."""
        limit = self.costs.limit_bytes[self.num_stages - 1 - from_back]
        if np.isinf(limit):
            return np.ones(np.broadcast_shapes(inner.shape, outer.shape), dtype=np.bool_)
        return np.asarray(self.memory_bytes(inner, outer, from_back) <= usable_bytes(limit), dtype=np.bool_)

    def boundary_s(self, position: int) -> Array:
        """[cuts] one-way transfer seconds over the boundary behind the device at `position`; zeros at the ends."""
        if 0 <= position < self.num_stages - 1:
            return self.costs.transfer_s[position]
        return np.zeros(self.costs.space.size)


@dataclass(frozen=True)
class PartitionResult:
    """Cuts c_1 … c_S, and the objective in seconds that they reach."""

    cuts: tuple[int, ...]
    value_s: float
