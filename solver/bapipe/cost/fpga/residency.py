"""What stays on the chip: of a stage's weights, gradients and stashes, those that make a micro-batch fastest.

On-chip memory comes in whole blocks, so that the choice is a knapsack over blocks with one choice a layer (a subset of
its items; with those of the layers that work in stream behind it), solved exactly: best[c] is the least cost of the
layers so far in at most c blocks, and

    best'[c] = min over the layer's choices of best[c - blocks] + cost.

The cost is the time of the layer's phases; of choices as fast, the one with the least traffic is preferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

import numpy as np
from numpy.typing import NDArray

from bapipe.cost.fpga.demand import ByPhase, Demand, Item, buffer_bytes, fused
from bapipe.problem import Fpga

TRAFFIC_WEIGHT = 1e-9
"""Of a second of traffic that compute hides, as a part of a second that it takes: settles ties, and no more."""

Costs = NDArray[np.float64]


@dataclass(frozen=True)
class Chip:
    """The memory of an FPGA as the knapsack sees it: blocks for what may stay, and the rate of what does not."""

    blocks: int
    block_bytes: int
    bandwidth_bytes_per_s: float

    def blocks_of(self, size_bytes: float) -> int:
        """Whole blocks for so many bytes."""
        return ceil(size_bytes / self.block_bytes)


def chip_of(fpga: Fpga, bandwidth_bytes_per_s: float) -> Chip:
    """On-chip memory without the buffers, in whole blocks."""
    free = fpga.on_chip_bytes - buffer_bytes(fpga)
    return Chip(free // fpga.memory_block_bytes, fpga.memory_block_bytes, bandwidth_bytes_per_s)


@dataclass(frozen=True)
class Choice:
    """Items of one layer that stay, the blocks that they take, and what the layer then costs in seconds."""

    resident: tuple[Item, ...]
    blocks: int
    cost_s: float


@dataclass(frozen=True)
class Residency:
    """What stays of a stage: layers with those fused to them, the items of each that stay, the bytes of their blocks,
    and seconds and bytes off chip by phase.
    """

    layers: tuple[Demand, ...]
    resident: tuple[tuple[Item, ...], ...]
    held_bytes: int
    seconds: tuple[ByPhase, ...]
    off_chip_bytes: tuple[ByPhase, ...]


def reside(stage: Sequence[Demand], chip: Chip, in_flight: int) -> Residency:
    """The best residency of a stage's layers, in their order, with so many micro-batches in flight."""
    layers = fused(stage)
    tables = [np.zeros(chip.blocks + 1)]
    choices = [layer_choices(demand, chip, in_flight) for demand in layers]
    for options in choices:
        tables.append(extend(tables[-1], options))
    resident: list[tuple[Item, ...]] = []
    room = chip.blocks
    for options, before in zip(reversed(choices), reversed(tables[:-1]), strict=True):
        fitting = [option for option in options if option.blocks <= room]
        taken = min(fitting, key=lambda option: before[room - option.blocks] + option.cost_s)
        resident.append(taken.resident)
        room -= taken.blocks
    resident.reverse()
    rows = list(zip(layers, resident, strict=True))
    return Residency(
        tuple(layers),
        tuple(resident),
        (chip.blocks - room) * chip.block_bytes,
        tuple(demand.seconds(names, chip.bandwidth_bytes_per_s) for demand, names in rows),
        tuple(demand.off_chip_bytes(names) for demand, names in rows),
    )


def layer_choices(demand: Demand, chip: Chip, in_flight: int) -> list[Choice]:
    """The choices of one layer that no other beats in both blocks and cost, fewest blocks first."""
    kept: list[Choice] = []
    for choice in sorted(_choices(demand, chip, in_flight), key=lambda choice: (choice.blocks, choice.cost_s)):
        if choice.blocks <= chip.blocks and (not kept or choice.cost_s < kept[-1].cost_s):
            kept.append(choice)
    return kept


def extend(best: Costs, choices: Sequence[Choice]) -> Costs:
    """[blocks + 1] the least cost with one layer more, within at most so many blocks."""
    result = best + choices[0].cost_s if not choices[0].blocks else np.full_like(best, np.inf)
    for choice in choices:
        if choice.blocks:
            np.minimum(
                result[choice.blocks :], best[: len(best) - choice.blocks] + choice.cost_s, out=result[choice.blocks :]
            )
    return np.asarray(result)


def _choices(demand: Demand, chip: Chip, in_flight: int) -> Iterator[Choice]:
    for count in range(len(demand.items) + 1):
        for items in combinations(demand.items, count):
            moved_s = sum(demand.off_chip_bytes(items)) / chip.bandwidth_bytes_per_s
            cost_s = sum(demand.seconds(items, chip.bandwidth_bytes_per_s)) + TRAFFIC_WEIGHT * moved_s
            yield Choice(items, sum(chip.blocks_of(item.held_bytes(in_flight)) for item in items), cost_s)
