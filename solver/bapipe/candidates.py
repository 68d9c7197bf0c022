"""The candidates of a search: which schedule, at which micro-batch size, on how many devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from bapipe.link_modes import pipelines_by_count
from bapipe.problem import PlanRequest, ScheduleName

DATA_PARALLEL: ScheduleName = "data-parallel"

WITHOUT_FLUSH: tuple[ScheduleName, ...] = ("pipedream",)
"""Pipelines that train otherwise than one device would: only tried where the request names them."""

MAX_OPERATIONS = 2**18
"""Forwards of a step beyond which a candidate is not tried: as many as 8 devices × 32,768 micro-batches."""

MAX_SIZES = 24
"""Micro-batch sizes tried where the request names none."""


@dataclass(frozen=True)
class Candidate:
    """`num_devices` stages of one device each; for data parallelism, so many replicas of a single stage."""

    schedule: ScheduleName
    microbatch_size: int
    num_microbatches: int
    num_devices: int

    @property
    def num_operations(self) -> int:
        """Forwards of a step: each replica has its share of the micro-batches, each stage all of them."""
        return self.num_microbatches * (1 if self.schedule == DATA_PARALLEL else self.num_devices)

    def __str__(self) -> str:
        unit = "replicas" if self.schedule == DATA_PARALLEL else "stages"
        return f"{self.schedule}, {self.num_devices} {unit}, {self.num_microbatches} × {self.microbatch_size} samples"


def candidates(request: PlanRequest) -> list[Candidate]:
    """Every candidate that `request` allows and that is not too long to replay, most devices first."""
    fewest, sizes = 1 + max(_pinned_places(request), default=0), microbatch_sizes(request)
    pipelines = pipelines_by_count(request)
    return [
        Candidate(schedule, size, request.batch_size // size, count)
        for count in _device_counts(request)
        if count >= fewest
        for size in sizes
        for schedule in _schedules(request, pipelines[count - 1])
        if _makes_sense(request, schedule, size, count)
    ]


def left_out(request: PlanRequest) -> list[int]:
    """The micro-batch sizes that are so small that a pipeline over all devices would be too long to replay."""
    longest = MAX_OPERATIONS // max(_device_counts(request))
    return [size for size in microbatch_sizes(request) if request.batch_size // size > longest]


def allowed_schedules(request: PlanRequest) -> tuple[ScheduleName, ...]:
    """The schedules to choose from on any number of devices."""
    pipelines = pipelines_by_count(request)
    found = dict.fromkeys(pipelines[count - 1] for count in _device_counts(request))
    return tuple(dict.fromkeys(name for allowed in found for name in _schedules(request, allowed)))


def _schedules(request: PlanRequest, allowed: tuple[ScheduleName, ...]) -> tuple[ScheduleName, ...]:
    """Those to try where the links allow these pipelines, least memory first: of equally good candidates the first is
    kept.

    The bottleneck is a model of pipelines only, the same for all of them and for all modes of links.
    """
    wanted = request.schedules or get_args(ScheduleName)
    asked = WITHOUT_FLUSH if request.schedules and request.objective == "step-time" else ()
    pipelines = tuple(name for name in (*allowed, *asked) if name in wanted)
    parallel = DATA_PARALLEL in wanted and request.objective != "bottleneck"
    return (*pipelines, DATA_PARALLEL) if parallel else pipelines


def microbatch_sizes(request: PlanRequest) -> list[int]:
    """Ascending. Unless the request says: those that divide the mini-batch, or the whole of it for the bottleneck.

    Of very many divisors, some are taken, evenly spread.
    """
    batch = request.batch_size
    if request.microbatch_sizes is not None:
        return sorted(set(request.microbatch_sizes))
    if request.microbatch_counts is not None:
        return sorted({batch // count for count in request.microbatch_counts})
    return [batch] if request.objective == "bottleneck" else _spread(divisors(batch), MAX_SIZES)


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _spread(numbers: list[int], most: int) -> list[int]:
    if len(numbers) <= most:
        return numbers
    return [numbers[k * (len(numbers) - 1) // (most - 1)] for k in range(most)]


def _device_counts(request: PlanRequest) -> list[int]:
    available = len(request.cluster.devices)
    return list(range(available, 0, -1)) if request.idle_devices else [available]


def _makes_sense(request: PlanRequest, schedule: ScheduleName, size: int, count: int) -> bool:
    if Candidate(schedule, size, request.batch_size // size, count).num_operations > MAX_OPERATIONS:
        return False
    if schedule == DATA_PARALLEL:
        replicas = request.max_replication or count
        return 1 < count <= min(replicas, request.batch_size // size)
    most = min(request.max_stages or count, len(request.profile.layers))
    return count <= most


def _pinned_places(request: PlanRequest) -> list[int]:
    """Where in the pipeline those devices are to which layers are pinned."""
    wanted = {pin.device for pin in request.profile.pins if pin.device is not None}
    return [place for place, device in enumerate(request.cluster.devices) if device.id in wanted]
