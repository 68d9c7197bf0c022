"""Chains of single devices and data parallelism, replayed in one sweep: what becomes of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from bapipe.cost.collectives import ring_bytes
from bapipe.cost.fpga.stage import Setting
from bapipe.cost.memory import peak_bytes
from bapipe.cost.pipeline import PipelineCost, pipeline_cost
from bapipe.orders import order_numbers
from bapipe.plan import Plan, Schedule
from bapipe.problem import PlanRequest
from bapipe.simulator.period import period_s
from bapipe.simulator.replay import AllReduce, Timeline, replay
from bapipe.simulator.simulation import LinkUse, Operations, Simulation, Transfers

KINDS = "FB"


def simulate_chain(plan: Plan, schedule: Schedule, codes: Sequence[Sequence[int]]) -> Simulation:
    """Replays one step of a plan whose structure is sound; `codes` are its orders as integers."""
    layers, devices = [stage.layers for stage in plan.stages], [stage.devices for stage in plan.stages]
    orders = dict(zip(dict.fromkeys(name for names in devices for name in names), codes, strict=True))
    training = plan.request.task == "training"
    settings = [Setting(max(_in_flight(orders[name], training) for name in names)) for names in devices]
    cost = pipeline_cost(plan.request, layers, devices, schedule.microbatch_size, settings=settings)
    count, numbers = schedule.num_microbatches, order_numbers(plan)
    return simulate_orders(plan.request, cost, codes, count, schedule.all_reduce, numbers)


def simulate_orders(
    request: PlanRequest,
    cost: PipelineCost,
    orders: Sequence[Sequence[int]],
    num_microbatches: int,
    all_reduce: AllReduce = "overlapped",
    order_numbers: Sequence[int] | None = None,
) -> Simulation:
    """`simulate` for a cost at hand and orders as integers, one for each of `cost.devices` (see `replay`)."""
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
        engines=(1,) * len(cost.devices),
    )


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
