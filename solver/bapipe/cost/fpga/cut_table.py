"""Seconds of every stage that two cuts of a model leave between them, on an FPGA: what stays on the chip depends on all
layers of the stage, so that its time is no difference of sums.

The knapsack of a stage is that of the stage without its last layer, with one layer more: all stages that end with the
same layer are extended at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bapipe.cost.fpga.demand import Demand
from bapipe.cost.fpga.residency import Best, Chip, Choice, extend, layer_choices, nothing
from bapipe.cost.fpga.table import FpgaTable
from bapipe.cuts import Array, CutSpace
from bapipe.problem import Device, PlanRequest

MAX_CUTS = 600
"""Of a model with more cuts, stages are not tabulated: there are too many pairs of them."""


class StageSeconds:
    """Tables by kind and speed of the device, micro-batches in flight and share, worked out when they are asked for."""

    def __init__(self, request: PlanRequest, space: CutSpace, microbatch_size: int) -> None:
        self._request, self._space = request, space
        self._table = FpgaTable(request, microbatch_size)
        self._crossing = space.crossing_bytes_per_sample * microbatch_size
        self._known: dict[tuple[str, float, int, float | None], tuple[Array, Array]] = {}

    def on(self, device: Device, in_flight: int, forward_share: float | None = None) -> tuple[Array, Array]:
        """[inner, outer] seconds of a forward and of a backward of one micro-batch; 0 where there is no stage.

        `forward_share`: of a split device, what the engine for forwards has; each engine's seconds are its own.
        """
        key = device.kind, device.speed, in_flight, forward_share
        if key not in self._known:
            demands = self._table.demands(device, forward_share)
            own = [demands[layer] for layer in self._space.graph.layers]
            training = self._request.task == "training"
            stages = _Stages(self._space, own, self._crossing, self._table.chip(device), in_flight, training)
            self._known[key] = stages.seconds()
        return self._known[key]


@dataclass
class _Ending:
    """All stages that end at one cut, by inner cut: their best residencies, those without the last layer and what is
    fused to it, and that layer.
    """

    row: dict[int, int]
    best: Best
    before: Best
    last: list[Demand]
    has_input: list[bool]


@dataclass
class _Choices:
    """The choices of layers with what is fused to them, and with the input of the stage where they receive it."""

    in_flight: int
    _known: dict[tuple[tuple[str, ...], int], list[Choice]] = field(default_factory=dict)

    def of(self, key: tuple[tuple[str, ...], int], demand: Demand, chip: Chip) -> list[Choice]:
        """Those of `demand`, which `key` names."""
        if key not in self._known:
            self._known[key] = layer_choices(demand, chip, self.in_flight)
        return self._known[key]


@dataclass(frozen=True)
class _Stages:
    space: CutSpace
    own: Sequence[Demand]
    crossing: Array
    chip: Chip
    in_flight: int
    training: bool

    def seconds(self) -> tuple[Array, Array]:
        """Both tables, cut by cut in order of size."""
        count = self.space.size
        every = np.arange(count)
        member = np.array([self.space.holds(position, every) for position in range(len(self.own))])
        cut_of = {member[:, cut].tobytes(): cut for cut in range(count)}
        parents = [self._parents(member, cut_of, outer) for outer in range(count)]
        needed = {parent: outer for outer in range(count) for _, parent, _ in parents[outer]}
        chip, choices = self._small_chip(), _Choices(self.in_flight)
        forward, backward = np.zeros((count, count)), np.zeros((count, count))
        endings: dict[int, _Ending] = {}
        for outer in range(1, count):
            ending = self._ending(parents[outer], endings, chip, choices)
            endings[outer] = ending
            inner = list(ending.row)
            forward[inner, outer] = ending.best.forward_s[:, -1]
            backward[inner, outer] = ending.best.backward_s[:, -1]
            endings = {cut: each for cut, each in endings.items() if needed.get(cut, -1) > outer}
        return forward, backward

    def _small_chip(self) -> Chip:
        """The chip with no more blocks than everything takes."""
        items = [item for demand in self.own for item in demand.items]
        most = sum(self.chip.blocks_of(item.held_bytes(self.in_flight)) for item in items)
        most += self.chip.blocks_of(float(self.crossing.max(initial=0.0)) * self.in_flight)
        return replace(self.chip, blocks=min(self.chip.blocks, most))

    @staticmethod
    def _parents(member: np.ndarray, cut_of: dict[bytes, int], outer: int) -> list[tuple[int, int, list[int]]]:
        """(last layer, outer cut without it, inner cuts) of the stages that end at `outer`."""
        inside = ~(member & ~member[:, outer][:, None]).any(axis=0)
        inside[outer] = False
        inners = np.flatnonzero(inside)
        own = member[:, outer][:, None] & ~member[:, inners]
        lasts = len(own) - 1 - own[::-1].argmax(axis=0)
        found = []
        for last in np.unique(lasts):
            without = member[:, outer].copy()
            without[last] = False
            found.append((int(last), cut_of[without.tobytes()], inners[lasts == last].tolist()))
        return found

    def _ending(
        self,
        parents: list[tuple[int, int, list[int]]],
        endings: dict[int, _Ending],
        chip: Chip,
        choices: _Choices,
    ) -> _Ending:
        row: dict[int, int] = {}
        best: list[Best] = []
        before: list[Best] = []
        lasts: list[Demand] = []
        inputs: list[bool] = []
        for inners, last, start, has_input in self._batches(parents, endings, chip):
            key = last.layers, inners[0] if has_input else -1
            best.append(extend(start, choices.of(key, last, chip))[0])
            before.append(start)
            for inner in inners:
                row[inner] = len(row)
                lasts.append(last)
                inputs.append(has_input)
        return _Ending(row, _joined(best), _joined(before), lasts, inputs)

    def _batches(
        self, parents: list[tuple[int, int, list[int]]], endings: dict[int, _Ending], chip: Chip
    ) -> Iterator[tuple[list[int], Demand, Best, bool]]:
        """(inner cuts, last layer with what is fused, the best without it, whether it receives the stage's input)."""
        for last, parent, inners in parents:
            demand, ending = self.own[last], endings.get(parent)
            groups: dict[tuple[object, ...], list[int]] = {}
            for inner in inners:
                if inner == parent or ending is None:
                    single = demand.with_input(float(self.crossing[inner]), training=self.training)
                    empty = nothing(chip)
                    yield [inner], single, _rows(empty, None), True
                    continue
                place = ending.row[inner]
                joins = demand.in_stream
                key = (ending.last[place].layers, inner if ending.has_input[place] else -1) if joins else ()
                groups.setdefault(key, []).append(inner)
            for members in groups.values():
                assert ending is not None
                rows = [ending.row[inner] for inner in members]
                if demand.in_stream:
                    joined = ending.last[rows[0]].followed_by(demand)
                    yield members, joined, _rows(ending.before, rows), ending.has_input[rows[0]]
                else:
                    yield members, demand, _rows(ending.best, rows), False


def _rows(best: Best, rows: list[int] | None) -> Best:
    """Some rows; None: the only one."""
    if rows is None:
        return Best(best.cost_s[None], best.forward_s[None], best.backward_s[None])
    return Best(best.cost_s[rows], best.forward_s[rows], best.backward_s[rows])


def _joined(parts: list[Best]) -> Best:
    return Best(
        np.concatenate([part.cost_s for part in parts]),
        np.concatenate([part.forward_s for part in parts]),
        np.concatenate([part.backward_s for part in parts]),
    )
