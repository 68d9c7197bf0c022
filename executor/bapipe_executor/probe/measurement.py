"""Transfers between ranks, timed on every rank of a process group."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from bapipe_executor.probe.fit import Point
from bapipe_executor.probe.rounds import Pair, all_pairs, rounds

Times = dict[Pair, list[Point]]
"""The least seconds of every size, by the pair that took them."""

WARM_UPS = 2


class Prober:
    """Measures as one rank; all ranks call the same methods in the same order.

    Only the lower rank of a pair reports its times.
    """

    def __init__(self, device: torch.device, sizes: Sequence[int], repeats: int) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._device, self._sizes, self._repeats = device, sizes, repeats
        self._buffers = {size: torch.zeros(size, dtype=torch.uint8, device=device) for size in sizes}
        self._wake = torch.zeros(1, device=device)

    def alone(self) -> Times:
        """Transfers of one pair at a time, everyone else waiting: half of there and back."""
        return self._meetings([[pair] for pair in all_pairs(self.count)])

    def together(self) -> Times:
        """The same with as many pairs at once as there can be."""
        return self._meetings(rounds(self.count))

    def pair_reductions(self) -> Times:
        """All-reduce between two ranks, one pair at a time."""
        groups = {pair: dist.new_group(list(pair)) for pair in all_pairs(self.count)}
        found: Times = {}
        for pair, group in groups.items():
            self._wait()
            if self.rank in pair:
                found[pair] = self._reduced(group)
        return {pair: points for pair, points in found.items() if pair[0] == self.rank}

    def reductions(self) -> list[Point]:
        """All-reduce between all ranks."""
        self._wait()
        return self._reduced(None)

    def _meetings(self, schedule: Sequence[Sequence[Pair]]) -> Times:
        found: Times = {}
        for meetings in schedule:
            mine = next((pair for pair in meetings if self.rank in pair), None)
            for size in self._sizes:
                self._wait()
                if mine is None:
                    continue
                seconds = self._least(partial(self._there_and_back, mine, size)) / 2
                found.setdefault(mine, []).append((size, seconds))
        return {pair: points for pair, points in found.items() if pair[0] == self.rank}

    def _there_and_back(self, pair: Pair, size: int) -> None:
        buffer = self._buffers[size]
        peer = pair[1] if self.rank == pair[0] else pair[0]
        for sends in (self.rank == pair[0], self.rank == pair[1]):
            if sends:
                dist.send(buffer, peer)
            else:
                dist.recv(buffer, peer)

    def _reduced(self, group: dist.ProcessGroup | None) -> list[Point]:
        buffers = {size: buffer.view(torch.float32) for size, buffer in self._buffers.items()}
        return [(size, self._least(partial(dist.all_reduce, each, group=group))) for size, each in buffers.items()]

    def _least(self, work: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(WARM_UPS + self._repeats):
            started = time.perf_counter()
            work()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            seconds.append(time.perf_counter() - started)
        return min(seconds[WARM_UPS:])

    def _wait(self) -> None:
        dist.all_reduce(self._wake)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
