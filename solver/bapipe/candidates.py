"""The candidates of a search: which schedule, at which micro-batch size, on how many devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from bapipe.problem import PlanRequest, ScheduleName

PIPELINES: tuple[ScheduleName, ...] = ("1f1b", "1f1b-so", "gpipe")
"""Least memory first, on every stage: of equally good candidates the first is kept."""

DATA_PARALLEL: ScheduleName = "data-parallel"


@dataclass(frozen=True)
class Candidate:
    """`num_devices` stages of one device each; for data parallelism, so many replicas of a single stage."""

    schedule: ScheduleName
    microbatch_size: int
    num_microbatches: int
    num_devices: int

    def __str__(self) -> str:
        unit = "replicas" if self.schedule == DATA_PARALLEL else "stages"
        return f"{self.schedule}, {self.num_devices} {unit}, {self.num_microbatches} × {self.microbatch_size} samples"


def candidates(request: PlanRequest) -> list[Candidate]:
    """Every candidate that `request` allows, most devices first."""
    return [
        Candidate(schedule, size, request.batch_size // size, count)
        for count in _device_counts(request)
        for size in microbatch_sizes(request)
        for schedule in allowed_schedules(request)
        if _makes_sense(request, schedule, size, count)
    ]


def allowed_schedules(request: PlanRequest) -> tuple[ScheduleName, ...]:
    """The schedules to choose from, least memory first.

    The bottleneck is a model of pipelines only, and the same for all of them: the first is enough.
    """
    wanted = request.schedules or get_args(ScheduleName)
    pipelines = tuple(name for name in PIPELINES if name in wanted)
    if request.objective == "bottleneck":
        return pipelines[:1]
    return (*pipelines, DATA_PARALLEL) if DATA_PARALLEL in wanted else pipelines


def microbatch_sizes(request: PlanRequest) -> list[int]:
    """Ascending. Unless the request says: all that divide the mini-batch, or the whole of it for the bottleneck."""
    batch = request.batch_size
    if request.microbatch_sizes is not None:
        return sorted(set(request.microbatch_sizes))
    if request.microbatch_counts is not None:
        return sorted({batch // count for count in request.microbatch_counts})
    return [batch] if request.objective == "bottleneck" else divisors(batch)


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _device_counts(request: PlanRequest) -> list[int]:
    available = len(request.cluster.devices)
    return list(range(available, 0, -1)) if request.idle_devices else [available]


def _makes_sense(request: PlanRequest, schedule: ScheduleName, size: int, count: int) -> bool:
    if schedule == DATA_PARALLEL:
        replicas = request.max_replication or count
        return 1 < count <= min(replicas, request.batch_size // size)
    most = min(request.max_stages or count, len(request.profile.layers))
    return count <= most
