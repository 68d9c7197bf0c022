"""What stays on the chip: of a stage's weights, gradients and stashes, those that make a micro-batch fastest.

On-chip memory comes in whole blocks, so that the choice is a knapsack over blocks with one choice a layer (a subset of
its items; with those of the layers that work in stream behind it), solved exactly: best[c] is the least cost of the
layers so far in at most c blocks, and

    best'[c] = min over the layer's choices of best[c - blocks] + cost.

The cost is the time of the layer's phases; of choices as fast, the one with the least traffic is preferred, then that
of the fewest blocks. Where more than `MAX_ITEMS` of a layer and of what works in stream behind it could stay,
neighbours stay together or not at all, so that there are no more subsets than of `MAX_ITEMS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from bapipe.cost.fpga.demand import ByPhase, Demand, Item, buffer_bytes, fused
from bapipe.problem import Fpga

TRAFFIC_WEIGHT = 1e-9
"""Of a second of traffic that compute hides, as a part of a second that it takes: settles ties, and no more."""

MAX_ITEMS = 12
"""Of one layer with those fused to it: so many are chosen from one by one."""

Costs = NDArray[np.float64]
Taken = NDArray[np.int16]


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
    """Items of one layer that stay, the blocks that they take, and what the layer then takes and costs in seconds."""

    resident: tuple[Item, ...]
    blocks: int
    forward_s: float
    backward_s: float
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
    chip = _no_larger_than_needed(chip, layers, in_flight)
    best, choices, chosen = nothing(chip), [], []
    for layer in layers:
        choices.append(layer_choices(layer, chip, in_flight))
        chosen.append(np.zeros(best.shape, dtype=np.int16))
        best = extend(best, choices[-1], chosen[-1])
    resident: list[tuple[Item, ...]] = []
    room = chip.blocks
    for options, taken in zip(reversed(choices), reversed(chosen), strict=True):
        choice = options[int(taken[room])]
        resident.append(choice.resident)
        room -= choice.blocks
    resident.reverse()
    rows = list(zip(layers, resident, strict=True))
    return Residency(
        tuple(layers),
        tuple(resident),
        (chip.blocks - room) * chip.block_bytes,
        tuple(demand.seconds(names, chip.bandwidth_bytes_per_s) for demand, names in rows),
        tuple(demand.off_chip_bytes(names) for demand, names in rows),
    )


def nothing(chip: Chip) -> Costs:
    """[blocks + 1] what no layer at all costs within at most so many blocks."""
    return np.zeros(chip.blocks + 1)


def _no_larger_than_needed(chip: Chip, layers: Sequence[Demand], in_flight: int) -> Chip:
    """The chip with no more blocks than everything takes."""
    most = sum(chip.blocks_of(item.held_bytes(in_flight)) for layer in layers for item in layer.items)
    return replace(chip, blocks=min(chip.blocks, most))


def layer_choices(demand: Demand, chip: Chip, in_flight: int) -> list[Choice]:
    """The choices of one layer that no other beats in both blocks and cost, fewest blocks first."""
    bundles = _bundles(demand.items)
    subsets = _subsets(len(bundles))
    blocks, seconds = np.zeros(len(subsets), dtype=np.int64), np.tile(demand.traffic_bytes, (len(subsets), 1))
    for number, items in enumerate(bundles):
        blocks += subsets[:, number] * sum(chip.blocks_of(item.held_bytes(in_flight)) for item in items)
        for item in items:
            seconds += np.where(subsets[:, number, None], 0.0, item.traffic_bytes)
    seconds /= chip.bandwidth_bytes_per_s
    moved_s = seconds.sum(axis=1)
    seconds = np.maximum(demand.compute_s, seconds)
    cost_s = seconds.sum(axis=1) + TRAFFIC_WEIGHT * moved_s
    return [
        Choice(
            tuple(item for number in np.flatnonzero(subsets[k]) for item in bundles[number]),
            int(blocks[k]),
            float(seconds[k, 0]),
            float(seconds[k, 1] + seconds[k, 2]),
            float(cost_s[k]),
        )
        for k in _unbeaten(blocks, cost_s, chip.blocks)
    ]


def extend(cost_s: Costs, choices: Sequence[Choice], taken: Taken) -> Costs:
    """[..., blocks + 1] the least costs with one layer more; `taken`, zeros, is filled with its choices that they take.
    The first choice needs no blocks.
    """
    least_s = cost_s + choices[0].cost_s
    for number, choice in enumerate(choices[1:], start=1):
        room = np.s_[..., choice.blocks :]
        other_s = cost_s[..., : cost_s.shape[-1] - choice.blocks] + choice.cost_s
        np.copyto(taken[room], np.int16(number), where=other_s < least_s[room])
        np.minimum(least_s[room], other_s, out=least_s[room])
    return least_s


def _bundles(items: Sequence[Item]) -> list[Sequence[Item]]:
    """What stays together: each item by itself, or as many neighbours as leave `MAX_ITEMS` bundles."""
    count = min(len(items), MAX_ITEMS)
    ends = [round(number * len(items) / max(1, count)) for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


@cache
def _subsets(count: int) -> NDArray[np.bool_]:
    """[subsets, count] every subset of so many, smallest first."""
    chosen = [subset for size in range(count + 1) for subset in combinations(range(count), size)]
    subsets = np.zeros((len(chosen), count), dtype=np.bool_)
    for row, subset in zip(subsets, chosen, strict=True):
        row[list(subset)] = True
    return subsets


def _unbeaten(blocks: NDArray[np.int64], cost_s: Costs, most: int) -> list[int]:
    """Fewest blocks first, those of at most so many blocks that cost less than all before."""
    order = np.lexsort((cost_s, blocks))
    order = order[blocks[order] <= most]
    before_s = np.minimum.accumulate(np.append(np.inf, cost_s[order]))[:-1]
    return [int(choice) for choice in order[cost_s[order] < before_s]]
