"""Replays the last stages of many partitions at once over links of any mode, on devices in one piece or two.

As `SuffixReplay`, which is faster where all transfers are stored and forwarded beside compute. Over blocking links the
devices stop for each other where a transfer takes time; so partitions are replayed together where the same transfers
do. The simulator re-times each plan that is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bapipe.cuts import Array, Indices
from bapipe.formulations.base import PartitionProblem
from bapipe.formulations.lowered_program import Meet, Run, program
from bapipe.formulations.suffix_replay import SuffixStages, SuffixTimes, Upstream, arrival_s
from bapipe.lowering import Manner


@dataclass(frozen=True)
class LoweredReplay:
    """The operations and exchanges of the last stages of a pipeline."""

    problem: PartitionProblem

    def run(self, stages: SuffixStages, upstream: Upstream | None) -> SuffixTimes:
        """Earliest times of every operation. `upstream` None: the suffix is the whole pipeline."""
        blocking = self._blocking(len(stages.forward_s), upstream)
        sent = np.array([stages.boundary_s[s] > 0 for s in blocking]).T
        if not blocking or sent.all():
            return self._follow(stages, upstream, set(blocking))
        patterns, members = np.unique(sent, axis=0, return_inverse=True)
        parts = []
        for number, pattern in enumerate(patterns):
            rows = np.flatnonzero(members.reshape(-1) == number)
            part = None if upstream is None else upstream.rows(rows)
            waits = {s for s, waits in zip(blocking, pattern, strict=True) if waits}
            parts.append((rows, self._follow(stages.rows(rows), part, waits)))
        return _joined(parts)

    def _blocking(self, count: int, upstream: Upstream | None) -> list[int]:
        """The stages of the suffix in front of which a link blocks, where there is anything in front of them."""
        first = self.problem.num_stages - count
        return [s for s in range(0 if upstream else 1, count) if self.problem.stops(first + s - 1)]

    def _follow(self, stages: SuffixStages, upstream: Upstream | None, waits: set[int]) -> SuffixTimes:
        problem, count = self.problem, len(stages.forward_s)
        steps = program(
            problem.schedule,
            problem.num_stages,
            problem.num_microbatches,
            self._manners(count, waits),
            training=problem.costs.training,
        )
        state = _State(stages, upstream, sum(map(len, steps.tracks)), steps.tracks)
        for instruction in steps.instructions:
            state.meet(instruction) if isinstance(instruction, Meet) else state.run(instruction)
        return state.times()

    def _manners(self, count: int, waits: set[int]) -> tuple[Manner, ...]:
        first = self.problem.num_stages - count
        manners: list[Manner] = []
        for s in range(count):
            manner: Manner = "overlapped" if first + s == 0 else self.problem.costs.boundaries[first + s - 1].manner
            manners.append("overlapped" if manner in ("fused", "ordered") and s not in waits else manner)
        return tuple(manners)


class _State:
    """Partitions while they are replayed."""

    def __init__(
        self, stages: SuffixStages, upstream: Upstream | None, num_tracks: int, tracks: tuple[tuple[int, ...], ...]
    ) -> None:
        size = len(stages.forward_s[0])
        self.stages, self.upstream, self.tracks = stages, upstream, tracks
        self.base = tracks[0][0]
        self.free = [np.zeros(size) for _ in range(num_tracks)]
        self.links = {(s, way): np.zeros(size) for s in range(len(stages.forward_s)) for way in (False, True)}
        self.arrived: dict[int, Array] = {}
        self.backward_end_s: list[Array] = []

    def run(self, step: Run) -> None:
        """Starts an operation when its track is free and what it reads is there, and sends what it makes."""
        start = self.free[step.track - self.base]
        for number in step.awaits:
            start = np.maximum(start, self.arrived.pop(number))
        if step.fed and self.upstream is not None:
            start = np.maximum(start, arrival_s(self.upstream, step.microbatch, self.backward_end_s))
        seconds = (self.stages.backward_s if step.backward else self.stages.forward_s)[step.stage]
        end = start + seconds
        self.free[step.track - self.base] = end
        if step.stage == 0 and step.backward:
            self.backward_end_s.append(end)
        for number in step.freely:
            self.arrived[number] = end
        for number, boundary, reader, streaming in step.sends:
            link = self.links[boundary, step.backward]
            if streaming:
                arrival, link = self.stream(step, start, end, link, boundary, reader)
            else:
                arrival = link = np.maximum(link, end) + self.stages.boundary_s[boundary]
            self.arrived[number], self.links[boundary, step.backward] = arrival, link

    def stream(
        self, step: Run, start: Array, end: Array, link: Array, boundary: int, reader: int
    ) -> tuple[Array, Array]:
        """(when the operation that reads may start, when the link is free), chunk by chunk."""
        whole, chunks = self.stages.boundary_s[boundary], self.stages.chunks[boundary]
        chunk = whole / chunks
        read = (self.stages.backward_s if step.backward else self.stages.forward_s)[reader]
        sent = np.maximum(link, np.where(chunks > 1, start + (end - start) / chunks, end))
        through = np.maximum(sent + whole, end + chunk)
        return np.maximum(sent + chunk, through - read * (chunks - 1) / chunks), through

    def meet(self, step: Meet) -> None:
        """Stops the tracks for a transfer; whoever is in front of the suffix is there as soon as it can be."""
        seconds = self.stages.boundary_s[step.boundary]
        free = [self.free[track - self.base] for track in step.tracks]
        start = free[0] if len(free) == 1 else np.maximum(free[0], free[1])
        if step.microbatch is not None and self.upstream is not None:
            there = arrival_s(self.upstream, step.microbatch, self.backward_end_s) - seconds
            start = np.maximum(start, there)
        for track in step.tracks:
            self.free[track - self.base] = start + seconds

    def times(self) -> SuffixTimes:
        """When all is done."""
        ends = [np.max([self.free[track - self.base] for track in mine], axis=0) for mine in self.tracks]
        return SuffixTimes(ends, self.backward_end_s)


def _joined(parts: list[tuple[Indices, SuffixTimes]]) -> SuffixTimes:
    """The times of all partitions from those of some rows each."""
    size = sum(len(rows) for rows, _ in parts)

    def joined(arrays: list[tuple[Indices, Array]]) -> Array:
        whole = np.empty(size)
        for rows, values in arrays:
            whole[rows] = values
        return whole

    first = parts[0][1]
    return SuffixTimes(
        [joined([(rows, times.device_end_s[s]) for rows, times in parts]) for s in range(len(first.device_end_s))],
        [joined([(rows, times.backward_end_s[k]) for rows, times in parts]) for k in range(len(first.backward_end_s))],
    )
