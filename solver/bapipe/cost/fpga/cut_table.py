"""Seconds of every stage that two cuts of a model leave between them, on an FPGA: what stays on the chip depends on all
layers of the stage, so that its time is no difference of sums.

The knapsack of a stage is that of the stage without its last group of layers, with one group more. Which group that is,
and what it is put behind, is the same on every device (`stage_rows.py`); so all stages with the same last group are
extended at once. What each takes is read off its choices, from the last group to the first, for all stages at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bapipe.cost.fpga.demand import Demand
from bapipe.cost.fpga.residency import Chip, Choice, Costs, Taken, extend, layer_choices, nothing
from bapipe.cost.fpga.stage_rows import NOTHING_BEFORE, Group, StageRows, stage_rows
from bapipe.cost.fpga.table import fpga_table
from bapipe.cuts import Array, CutSpace
from bapipe.problem import Device, PlanRequest

MAX_CUTS = 600
"""Of a model with more cuts, stages are not tabulated: there are too many pairs of them."""


class StageSeconds:
    """Tables by kind and speed of the device, micro-batches in flight and share, worked out when they are asked for."""

    def __init__(self, request: PlanRequest, space: CutSpace, microbatch_size: int) -> None:
        self._request, self._space = request, space
        self._table = fpga_table(request, microbatch_size)
        self._crossing = space.crossing_bytes_per_sample * microbatch_size
        self._known: dict[tuple[str, float, int, float | None], tuple[Array, Array]] = {}

    def on(self, device: Device, in_flight: int, forward_share: float | None = None) -> tuple[Array, Array]:
        """[inner, outer] seconds of a forward and of a backward of one micro-batch; 0 where there is no stage.

        `forward_share`: of a split device, what the engine for forwards has; each engine's seconds are its own.
        """
        key = device.kind, device.speed, in_flight, forward_share
        if key not in self._known:
            self._known[key] = self._seconds(device, in_flight, forward_share)
        return self._known[key]

    @cached_property
    def _rows(self) -> StageRows:
        layers = self._request.profile.layers
        return stage_rows(self._space, [layers[layer] for layer in self._space.graph.layers])

    def _seconds(self, device: Device, in_flight: int, forward_share: float | None) -> tuple[Array, Array]:
        demands = self._table.demands(device, forward_share)
        own = [demands[layer] for layer in self._space.graph.layers]
        chip = self._small(self._table.chip(device), own, in_flight)
        choices = [layer_choices(self._demand(group, own), chip, in_flight) for group in self._rows.groups]
        taken = _best_choices(self._rows, choices, chip)
        seconds = _Seconds(self._rows, choices, taken).read()
        tables = np.zeros((2, self._space.size, self._space.size))
        tables[:, self._rows.inner, self._rows.outer] = seconds
        return tables[0], tables[1]

    def _demand(self, group: Group, own: Sequence[Demand]) -> Demand:
        first, *behind = (own[position] for position in group.positions)
        if group.receives is not None:
            size = float(self._crossing[group.receives])
            first = first.with_input(size, training=self._request.task == "training")
        for demand in behind:
            first = first.followed_by(demand)
        return first

    def _small(self, chip: Chip, own: Sequence[Demand], in_flight: int) -> Chip:
        """The chip with no more blocks than everything takes."""
        items = [item for demand in own for item in demand.items]
        most = sum(chip.blocks_of(item.held_bytes(in_flight)) for item in items)
        most += chip.blocks_of(float(self._crossing.max(initial=0.0)) * in_flight)
        return replace(chip, blocks=min(chip.blocks, most))


def _best_choices(rows: StageRows, choices: Sequence[Sequence[Choice]], chip: Chip) -> Taken:
    """[stages, blocks + 1] which choice of its last group a stage takes for its best residency in so many blocks."""
    taken = np.zeros((len(rows.inner), chip.blocks + 1), dtype=np.int16)
    empty = nothing(chip)[None]
    costs: dict[int, Costs] = {}
    for ending in rows.endings:
        found = []
        for batch in ending.batches:
            before = empty if batch.behind is None else costs[batch.behind][batch.places]
            found.append(extend(before, choices[batch.group], taken[batch.start : batch.end]))
        costs[ending.outer] = found[0] if len(found) == 1 else np.concatenate(found)
        for outer in ending.done:
            del costs[outer]
    return taken


@dataclass(frozen=True)
class _Seconds:
    """Reads what every stage takes off the choices of its groups."""

    rows: StageRows
    choices: Sequence[Sequence[Choice]]
    taken: Taken

    def read(self) -> Array:
        """[forward and backward, stages] seconds."""
        blocks, seconds = self._of_choices()
        stages = len(self.rows.inner)
        found = np.zeros((2, stages))
        at = stage = np.arange(stages)
        room = np.full(stages, self.taken.shape[1] - 1)
        while len(stage):
            group, choice = self.rows.group[at], self.taken[at, room]
            found[:, stage] += seconds[:, group, choice]
            room = room - blocks[group, choice]
            at = self.rows.before[at]
            more = at != NOTHING_BEFORE
            at, stage, room = at[more], stage[more], room[more]
        return found

    def _of_choices(self) -> tuple[NDArray[np.intp], Array]:
        """[groups, choices] blocks, and [forward and backward, groups, choices] seconds."""
        most = max(len(each) for each in self.choices)
        blocks, seconds = np.zeros((len(self.choices), most), dtype=np.intp), np.zeros((2, len(self.choices), most))
        for number, group in enumerate(self.choices):
            blocks[number, : len(group)] = [choice.blocks for choice in group]
            seconds[0, number, : len(group)] = [choice.forward_s for choice in group]
            seconds[1, number, : len(group)] = [choice.backward_s for choice in group]
        return blocks, seconds
