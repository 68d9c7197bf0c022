"""What a plan costs: its step replayed, with the use of devices, links and memory. No search, no formulation.

The times are those of `bapipe.replay`; peak memory follows from the orders alone (`bapipe.cost.memory`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bapipe.cost.collectives import ring_bytes
from bapipe.cost.memory import peak_bytes
from bapipe.cost.pipeline import PipelineCost, pipeline_cost, stage_loads_s
from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import parse
from bapipe.graph import graph_of
from bapipe.orders import read_orders, seats_of
from bapipe.period import period_s
from bapipe.plan import Plan, Prediction
from bapipe.problem import Cluster, Link, PlanRequest
from bapipe.replay import AllReduce, Reduction, Timeline, replay
from bapipe.structure import structure_faults

KINDS = "FB"
DEVICE_FIGURES = ("device", "busy_s", "span_bubble_s", "peak_memory_bytes")


@dataclass(frozen=True)
class Operations:
    """Operations as columns, device by device in the order of execution. `device` indexes `Simulation.devices`."""

    device: tuple[int, ...]
    stage: tuple[int, ...]
    kind: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


@dataclass(frozen=True)
class Transfers:
    """Transfers that take time, as columns. `source` and `target` index `Simulation.devices`; kind F carries an
    activation, kind B a gradient."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    kind: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


@dataclass(frozen=True)
class LinkUse:
    """One direction of a link over a step: seconds that it is busy, and bytes; device ids."""

    source: str
    target: str
    busy_s: float
    size_bytes: float


@dataclass(frozen=True)
class Simulation:
    """A plan's step, replayed. Tuples with an entry a device follow `devices`, those in use, stage by stage.

    `step_time_s` is the makespan with gradient reduction and optimizer step; `period_s` the time from step to step when
    steps follow each other and each device starts the next once its own weights are updated. `busy_s` counts compute
    and optimizer, `span_bubble_s` the idle time between a device's first and last operation, and `bubble_fraction`
    the idle share of the devices in use over the step. `peak_memory_bytes` includes the reserve of the device's kind.
    """

    devices: tuple[str, ...]
    cost: PipelineCost
    step_time_s: float
    period_s: float
    operations: Operations
    transfers: Transfers
    reductions: tuple[Reduction, ...]
    optimizer_start_s: tuple[float, ...]
    optimizer_end_s: tuple[float, ...]
    busy_s: tuple[float, ...]
    span_bubble_s: tuple[float, ...]
    bubble_fraction: float
    peak_memory_bytes: tuple[float, ...]
    links: tuple[LinkUse, ...]

    def prediction(self, request: PlanRequest) -> Prediction:
        """The figures that a plan carries. A step that takes no time has 0 samples per second.

        Raises:
            InvalidInputError: when a figure is beyond what a plan can say.
        """
        rows = zip(self.devices, self.busy_s, self.span_bubble_s, self.peak_memory_bytes, strict=True)
        figures = {
            "step_time_s": self.step_time_s,
            "period_s": self.period_s,
            "bottleneck_s": max(stage_loads_s(self.cost, request.communication)),
            "samples_per_s": request.batch_size / self.step_time_s if self.step_time_s else 0.0,
            "bubble_fraction": self.bubble_fraction,
            "devices": tuple(dict(zip(DEVICE_FIGURES, row, strict=True)) for row in rows),
            "links": tuple(
                {"source": use.source, "target": use.target, "busy_s": use.busy_s, "bytes": use.size_bytes}
                for use in self.links
            ),
        }
        return parse(Prediction, figures, "/prediction")


def simulate(plan: Plan) -> Simulation:
    """Replays one step of `plan`, from its layers, devices and orders; the figures that it declares are not read.

    Raises:
        InvalidInputError: every fault of the plan's structure or orders; `unsupported` for what cannot be simulated
            yet; `deadlock` for orders that wait for each other.
    """
    schedule = plan.schedule
    faults = [*structure_faults(plan), *unsupported(plan.request, "/request")]
    if faults or schedule is None:
        raise InvalidInputError(faults)
    orders, faults = read_orders(plan, schedule)
    if faults:
        raise InvalidInputError(faults)
    layers, devices = [stage.layers for stage in plan.stages], [stage.devices for stage in plan.stages]
    cost = pipeline_cost(plan.request, layers, devices, schedule.microbatch_size)
    numbers = [seat.order_number for seat in seats_of(plan)]
    return simulate_orders(plan.request, cost, orders, schedule.num_microbatches, schedule.all_reduce, numbers)


def simulate_orders(
    request: PlanRequest,
    cost: PipelineCost,
    orders: Sequence[Sequence[int]],
    num_microbatches: int,
    all_reduce: AllReduce = "overlapped",
    order_numbers: Sequence[int] | None = None,
) -> Simulation:
    """`simulate` for a cost at hand and orders as integers, one for each of `cost.devices` (see `bapipe.replay`)."""
    timeline = replay(cost, orders, num_microbatches, all_reduce=all_reduce, order_numbers=order_numbers)
    busy = tuple(track.compute_s + track.optimizer_s for track in timeline.tracks)
    step_time_s = timeline.step_time_s
    available_s = len(busy) * step_time_s
    return Simulation(
        devices=cost.devices,
        cost=cost,
        step_time_s=step_time_s,
        period_s=period_s(cost, timeline, num_microbatches, all_reduce),
        operations=_operations(timeline),
        transfers=_transfers(timeline),
        reductions=timeline.reductions,
        optimizer_start_s=tuple(track.optimizer_start_s for track in timeline.tracks),
        optimizer_end_s=tuple(track.optimizer_end_s for track in timeline.tracks),
        busy_s=busy,
        span_bubble_s=tuple(track.span_bubble_s for track in timeline.tracks),
        bubble_fraction=min(1.0, max(0.0, 1 - sum(busy) / available_s)) if available_s else 0.0,
        peak_memory_bytes=_peaks(request, cost, timeline),
        links=tuple(_link_uses(cost, num_microbatches)),
    )


def unsupported(request: PlanRequest, pointer: str = "") -> list[Fault]:
    """What the request says that cannot be simulated yet; pointers below `pointer`."""
    return [
        Fault("unsupported", f"{what} cannot be simulated yet; {remedy}", pointer + place)
        for place, what, remedy in (*_unsupported_links(request.cluster), *_unsupported_parts(request))
    ]


def _unsupported_links(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    links = cluster.links
    given: list[tuple[str, Link | None]] = [
        ("within_host", links.within_host),
        ("between_hosts", links.between_hosts),
        ("between_racks", links.between_racks),
        *((f"pairs/{k}/link", pair.link) for k, pair in enumerate(links.pairs)),
    ]
    for name, link in given:
        if link is not None and link.mode != "overlapped":
            yield f"/cluster/links/{name}/mode", f"{link.mode} links", "use overlapped"
    if cluster.host_nic is not None:
        yield "/cluster/host_nic", "a network card that a host's devices share", "leave it out"


def _unsupported_parts(request: PlanRequest) -> Iterator[tuple[str, str, str]]:
    tensors = graph_of(request.profile).tensors
    if request.cluster.skip_tensors == "direct" and any(max(t.consumers) > t.source + 1 for t in tensors):
        yield "/cluster/skip_tensors", "tensors sent past a stage", "use relay"
    if request.profile.tied_parameters:
        yield "/profile/tied_parameters", "tied parameters", "give each layer its own copy"
    used = {device.kind for device in request.cluster.devices}
    for k, kind in enumerate(request.cluster.kinds):
        if kind.execution == "async" and kind.name in used:
            yield f"/cluster/kinds/{k}/execution", "asynchronous devices", "use sync"


def _operations(timeline: Timeline) -> Operations:
    device: list[int] = []
    stage: list[int] = []
    order: list[int] = []
    start_s: list[float] = []
    end_s: list[float] = []
    for d, track in enumerate(timeline.tracks):
        seconds = track.seconds
        device += [d] * len(track.order)
        stage += [track.stage] * len(track.order)
        order += track.order
        start_s += track.starts_s
        end_s += [start + seconds[op & 1] for start, op in zip(track.starts_s, track.order, strict=True)]
    kind = tuple([KINDS[op & 1] for op in order])
    microbatch = tuple([op >> 1 for op in order])
    return Operations(tuple(device), tuple(stage), kind, microbatch, tuple(start_s), tuple(end_s))


def _transfers(timeline: Timeline) -> Transfers:
    source: list[int] = []
    target: list[int] = []
    kind: list[str] = []
    microbatch: list[int] = []
    start_s: list[float] = []
    end_s: list[float] = []
    for d, track in enumerate(timeline.tracks):
        for number, other in ((0, d + 1), (1, d - 1)):
            starts_s = track.sends_s[number]
            if starts_s:
                source += [d] * len(starts_s)
                target += [other] * len(starts_s)
                kind += KINDS[number] * len(starts_s)
                microbatch += [op >> 1 for op in track.order if op & 1 == number]
                start_s += starts_s
                end_s += [start + track.send_s[number] for start in starts_s]
    return Transfers(tuple(source), tuple(target), tuple(kind), tuple(microbatch), tuple(start_s), tuple(end_s))


def _peaks(request: PlanRequest, cost: PipelineCost, timeline: Timeline) -> tuple[float, ...]:
    kinds = {kind.name: kind for kind in request.cluster.kinds}
    reserved = {device.id: kinds[device.kind].reserved_bytes for device in request.cluster.devices}
    policy = request.cluster.receive_buffers
    return tuple(
        reserved[track.device]
        + peak_bytes(
            cost.stages[track.stage].memory,
            _in_flight(track.order, cost.training),
            len(track.order) // (2 if cost.training else 1),
            policy,
            training=cost.training,
        )
        for track in timeline.tracks
    )


def _in_flight(order: Sequence[int], training: bool) -> int:
    """Most micro-batches whose forward has started and whose backward has not ended."""
    if not training:
        return min(1, len(order))
    return max(accumulate([1 - 2 * (operation & 1) for operation in order]), default=0)


def _link_uses(cost: PipelineCost, num_microbatches: int) -> Iterator[LinkUse]:
    for cut in cost.boundaries:
        size = cut.size_bytes * num_microbatches
        yield LinkUse(cut.source, cut.target, cut.forward_s * num_microbatches, size)
        if cost.training:
            yield LinkUse(cut.target, cut.source, cut.backward_s * num_microbatches, size)
    for stage in cost.stages:
        ring = stage.devices
        if stage.buckets:
            seconds = sum(bucket.all_reduce_s for bucket in stage.buckets)
            size = ring_bytes(len(ring), sum(bucket.size_bytes for bucket in stage.buckets))
            for source, target in zip(ring, (*ring[1:], ring[0]), strict=True):
                yield LinkUse(source, target, seconds, size)
