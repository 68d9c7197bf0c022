"""Replays the last stages of many partitions at once, as if what is in front of them were as fast as it can be.

The order of operations is the schedule's; only durations differ between partitions, so each operation is one step over
an array of partitions. With every stage in the suffix the replay is exact; the simulator, which shares nothing with
it, re-times each plan that is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bapipe.cuts import Array, Indices
from bapipe.problem import ScheduleName
from bapipe.schedules import operations

Operation = tuple[int, bool, int]
"""(stage counted from the first of the suffix, is it a backward, micro-batch)."""


@dataclass(frozen=True)
class SuffixStages:
    """[partitions] seconds of each stage of a suffix, and of one transfer over the boundary in front of each.

    `chunks`: in how many that transfer goes, where links stream; else empty.
    """

    forward_s: list[Array]
    backward_s: list[Array]
    boundary_s: list[Array]
    chunks: list[Array] = field(default_factory=list)

    def rows(self, rows: Indices) -> SuffixStages:
        """Some of the partitions."""
        parts = (self.forward_s, self.backward_s, self.boundary_s, self.chunks)
        return SuffixStages(*([values[rows] for values in part] for part in parts))


@dataclass(frozen=True)
class Upstream:
    """[partitions] what is known of the stages in front of a suffix.

    `first_arrival_s`: earliest arrival of micro-batch 0; `spacing_s`: least time between arrivals. `round_trips`:
    micro-batch m arrives no sooner than seconds after micro-batch m - K has left the suffix backwards, for each pair
    (K, seconds).
    """

    first_arrival_s: Array
    spacing_s: Array
    round_trips: list[tuple[int, Array]]

    def rows(self, rows: Indices) -> Upstream:
        """Some of the partitions."""
        trips = [(in_flight_count, seconds[rows]) for in_flight_count, seconds in self.round_trips]
        return Upstream(self.first_arrival_s[rows], self.spacing_s[rows], trips)


@dataclass
class SuffixTimes:
    """[partitions] when each device of the suffix is done, and the backward of each micro-batch on its first stage."""

    device_end_s: list[Array]
    backward_end_s: list[Array] = field(default_factory=list)


@dataclass(frozen=True)
class SuffixReplay:
    """The operations of the last stages of a pipeline of `num_stages`, in an order in which they can be replayed."""

    schedule: ScheduleName
    num_stages: int
    num_microbatches: int
    training: bool

    def run(self, stages: SuffixStages, upstream: Upstream | None) -> SuffixTimes:
        """Earliest times of every operation. `upstream` None: the suffix is the whole pipeline."""
        count, size = len(stages.forward_s), len(stages.forward_s[0])
        free = [np.zeros(size) for _ in range(count)]
        links = ([np.zeros(size) for _ in range(count)], [np.zeros(size) for _ in range(count)])
        arrived: dict[Operation, Array] = {}
        times = SuffixTimes(free)
        for stage, backward, microbatch in _program(
            self.schedule, self.num_stages, self.num_microbatches, self.training, count
        ):
            ready = arrived.pop((stage, backward, microbatch), None)
            if stage == 0 and not backward and upstream is not None:
                ready = arrival_s(upstream, microbatch, times.backward_end_s)
            start = free[stage] if ready is None else np.maximum(free[stage], ready)
            end = start + (stages.backward_s if backward else stages.forward_s)[stage]
            free[stage] = end
            if stage == 0 and backward:
                times.backward_end_s.append(end)
            target = stage - 1 if backward else stage + 1
            if 0 <= target < count:
                boundary = stages.boundary_s[stage if backward else target]
                link = links[backward]
                link[stage] = np.maximum(link[stage], end) + boundary
                arrived[target, backward, microbatch] = link[stage]
        return times


def arrival_s(upstream: Upstream, microbatch: int, backward_end_s: list[Array]) -> Array:
    """Earliest arrival of a micro-batch at a suffix, of which so many backwards have left already."""
    arrival = upstream.first_arrival_s + microbatch * upstream.spacing_s
    for in_flight_count, seconds in upstream.round_trips:
        if microbatch >= in_flight_count:
            arrival = np.maximum(arrival, backward_end_s[microbatch - in_flight_count] + seconds)
    return arrival


@lru_cache(maxsize=256)
def _program(
    schedule: ScheduleName, num_stages: int, num_microbatches: int, training: bool, count: int
) -> tuple[Operation, ...]:
    """Operations of the last `count` stages such that each comes after those it waits for."""
    rows = operations(schedule, num_stages, num_microbatches, training=training)[num_stages - count :]
    queues = [[(stage, bool(code % 2), code // 2) for code in row] for stage, row in enumerate(rows)]
    done: set[Operation] = set()
    places = [0] * count
    program: list[Operation] = []
    total = sum(map(len, queues))
    while len(program) < total:
        for stage, queue in enumerate(queues):
            while places[stage] < len(queue) and _can_run(queue[places[stage]], count, done):
                done.add(queue[places[stage]])
                program.append(queue[places[stage]])
                places[stage] += 1
    return tuple(program)


def _can_run(operation: Operation, count: int, done: set[Operation]) -> bool:
    stage, backward, microbatch = operation
    if backward:
        return stage == count - 1 or (stage + 1, True, microbatch) in done
    return stage == 0 or (stage - 1, False, microbatch) in done
