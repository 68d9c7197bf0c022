"""Plans that are replayed event by event: what becomes of their steps, and what devices and links are used for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bapipe.cost.collectives import ring_bytes
from bapipe.cost.memory import (
    kept_bytes_per_sample,
    stash_bytes_per_sample,
    static_bytes,
    tied_static_bytes,
)
from bapipe.cost.pipeline import PipelineCost, pipeline_cost
from bapipe.errors import Fault, InvalidInputError
from bapipe.lowering import Operation
from bapipe.no_flush import in_a_row, no_flush_order_faults, resident_microbatches, stage_operations
from bapipe.orders import order_numbers, read_orders
from bapipe.plan import Plan, Schedule
from bapipe.problem import Layer, TiedParameters
from bapipe.simulator.endless import period_without_flush_s
from bapipe.simulator.events import Job, Replayed, replay_events
from bapipe.simulator.occupancy import Held, peak_of_device
from bapipe.simulator.period import period_of_job_s
from bapipe.simulator.replay import Reduction
from bapipe.simulator.settings import stage_settings
from bapipe.simulator.simulation import LinkUse, Operations, Simulation, Transfers
from bapipe.simulator.workload import Workload


@dataclass(frozen=True)
class Prepared:
    """A plan ready to be replayed."""

    work: Workload
    cost: PipelineCost
    job: Job
    numbers: tuple[int, ...]

    def pointer(self, track: int, operation: Operation) -> str:
        """Where an operation of one of the job's orders stands in the plan."""
        device = self.job.devices[track]
        listed = operation._replace(kind="B") if operation.kind == "O" else operation
        return f"/schedule/orders/{self.numbers[device]}/{self.work.orders[device].index(listed)}"


def simulate_events(plan: Plan, schedule: Schedule) -> Simulation:
    """Replays one step of a plan whose structure is sound.

    Raises:
        InvalidInputError: every fault of the orders; `missing_split`, `deadlock`.
    """
    ready = prepare(plan, schedule)
    replayed = replay_events(ready.job, None, ready.pointer)
    return simulation_of(ready.work, ready.cost, ready.job, replayed, _period_s(ready.work, ready.job, replayed))


def prepare(plan: Plan, schedule: Schedule) -> Prepared:
    """Reads and prices a plan whose structure is sound.

    Raises:
        InvalidInputError: every fault of the orders; `missing_split`.
    """
    orders, faults = read_orders(plan, schedule)
    faults = faults or list(no_flush_order_faults(plan, schedule))
    if faults:
        raise InvalidInputError(faults)
    cost = pipeline_cost(
        plan.request,
        [stage.layers for stage in plan.stages],
        [stage.devices for stage in plan.stages],
        schedule.microbatch_size,
        [stage.recomputed_layers for stage in plan.stages],
        stage_settings(plan, orders),
    )
    numbers = order_numbers(plan)
    work = Workload(plan, schedule, cost.devices, orders)
    faults = list(_split_faults(work, numbers))
    if faults:
        raise InvalidInputError(faults)
    return Prepared(work, cost, work.job(), tuple(numbers))


def _period_s(work: Workload, job: Job, first: Replayed) -> float:
    if work.versions is None:
        return period_of_job_s(job, first, training=work.training)

    def run(steps: int) -> Replayed:
        longer = in_a_row(work.plan, steps)
        assert longer.schedule is not None
        orders, _ = read_orders(longer, longer.schedule)
        job = Workload(longer, longer.schedule, work.devices, orders).job()
        return replay_events(job, None, lambda order, what: "/schedule/weight_versions")

    return period_without_flush_s(run, work.versions, work.schedule.num_microbatches)


def _split_faults(work: Workload, numbers: Sequence[int]) -> Iterator[Fault]:
    """The first operation of each order whose kind has no time."""
    for d, order in enumerate(work.orders):
        for place, operation in enumerate(order):
            if operation.kind not in work.shares[operation.stage, d].seconds:
                detail = (
                    f"{operation}: a layer of stage {operation.stage} has no input_gradient_s and weight_gradient_s; "
                    "give both, or use B"
                )
                yield Fault("missing_split", detail, f"/schedule/orders/{numbers[d]}/{place}")
                break


def simulation_of(work: Workload, cost: PipelineCost, job: Job, replayed: Replayed, period_s: float) -> Simulation:
    """What becomes of a replayed job; operations that were never executed are left out."""
    count, orders = len(work.devices), _executed(work, job, replayed)
    track = [job.devices.index(d) for d in range(count)]
    seconds = {operation: value for order in job.seconds for operation, value in order.items()}
    compute_s = [
        sum(seconds[operation] * work.part_of_device(operation, d) for operation in order)
        for d, order in enumerate(orders)
    ]
    busy_s = tuple(compute_s[d] + job.optimizer_s[track[d]] for d in range(count))
    step_time_s = max(replayed.optimizer_end_s)
    available_s = count * step_time_s
    exchanged = _exchanged_bytes(job)
    return Simulation(
        devices=cost.devices,
        cost=cost,
        step_time_s=step_time_s,
        period_s=period_s,
        operations=_operations(orders, replayed),
        transfers=_transfers(job, replayed),
        reductions=tuple(
            Reduction(bucket.stage, bucket.size_bytes, start_s, start_s + bucket.price.seconds)
            for bucket, start_s in zip(job.buckets, replayed.reduced_s, strict=True)
        ),
        optimizer_start_s=tuple(replayed.optimizer_start_s[t] for t in track),
        optimizer_end_s=tuple(replayed.optimizer_end_s[t] for t in track),
        busy_s=busy_s,
        span_bubble_s=tuple(_span_bubble_s(order, compute_s[d], replayed) for d, order in enumerate(orders)),
        bubble_fraction=min(1.0, max(0.0, 1 - sum(busy_s) / available_s)) if available_s else 0.0,
        peak_memory_bytes=tuple(_peak_bytes(work, d, exchanged) for d in range(count)),
        links=tuple(_link_uses(job, cost.devices)),
        engines=tuple(work.engines(d) for d in range(count)),
        flushed=work.versions is None,
    )


def _executed(work: Workload, job: Job, replayed: Replayed) -> Sequence[Sequence[Operation]]:
    """What each device executes: its order and, without a flush, the updates in between."""
    orders: Sequence[Sequence[Operation]] = work.orders
    if work.updating:
        orders = [[step for step in order if isinstance(step, Operation)] for order in job.lowered.orders]
    return [[operation for operation in order if operation in replayed.ends_s] for order in orders]


def _operations(orders: Sequence[Sequence[Operation]], replayed: Replayed) -> Operations:
    rows = [(d, operation) for d, order in enumerate(orders) for operation in order]
    return Operations(
        device=tuple(d for d, _ in rows),
        stage=tuple(operation.stage for _, operation in rows),
        kind=tuple(operation.kind for _, operation in rows),
        microbatch=tuple(operation.microbatch for _, operation in rows),
        start_s=tuple(replayed.starts_s[operation] for _, operation in rows),
        end_s=tuple(replayed.ends_s[operation] for _, operation in rows),
    )


def _transfers(job: Job, replayed: Replayed) -> Transfers:
    messages = job.lowered.messages
    numbers = sorted(replayed.sent_s, key=lambda n: (messages[n].source, messages[n].target, replayed.sent_s[n][0]))
    return Transfers(
        source=tuple(job.devices[messages[n].source] for n in numbers),
        target=tuple(job.devices[messages[n].target] for n in numbers),
        kind=tuple("F" if messages[n].made_by.kind == "F" else "B" for n in numbers),
        microbatch=tuple(messages[n].made_by.microbatch for n in numbers),
        start_s=tuple(replayed.sent_s[n][0] for n in numbers),
        end_s=tuple(replayed.sent_s[n][1] for n in numbers),
    )


def _span_bubble_s(order: Sequence[Operation], compute_s: float, replayed: Replayed) -> float:
    if not order:
        return 0.0
    first_s = min(replayed.starts_s[operation] for operation in order)
    last_s = max(replayed.ends_s[operation] for operation in order)
    return max(0.0, last_s - first_s - compute_s)


def _peak_bytes(work: Workload, device: int, exchanged: dict[tuple[int, int, str], float]) -> float:
    request = work.plan.request
    stages = {
        stage: _held(work, stage, *(exchanged.get((device, stage, way), 0.0) for way in ("in", "out")))
        for stage in work.stages_on(device)
    }
    layers = [layer for stage in stages for layer in work.layers[stage]]
    static = sum(static_bytes(request, layer) for layer in layers)
    static += sum(tied_static_bytes(request, tied) for tied in work.tied_on(device))
    static += work.spare_versions(device) * _parameter_bytes(layers, work.tied_on(device))
    policy, training = request.cluster.receive_buffers, work.training
    peak = peak_of_device(
        _resident_order(work, device),
        stages,
        static,
        policy,
        training=training,
        engines=work.engines(device),
    )
    return work.kinds[work.placed[device].kind].reserved_bytes + peak


def _parameter_bytes(layers: Sequence[Layer], tied: Sequence[TiedParameters]) -> int:
    return sum(layer.parameter_bytes for layer in layers) + sum(each.parameter_bytes for each in tied)


def _resident_order(work: Workload, device: int) -> Sequence[Operation]:
    """The order that says what is held at once: without a flush, that of as many mini-batches as are in flight."""
    if work.versions is None:
        return work.orders[device]
    stage = work.stages_on(device)[0]
    count = resident_microbatches(work.versions[stage], work.schedule.num_microbatches)
    return stage_operations(stage, work.versions[stage], count)


def _held(work: Workload, stage: int, received_bytes: float, sent_bytes: float) -> Held:
    """What a micro-batch of a stage keeps on a device; only what comes from or goes to another has a buffer."""
    request, layers, size = work.plan.request, work.layers[stage], work.schedule.microbatch_size
    again = set(work.plan.stages[stage].recomputed_layers)
    return Held(
        stash_bytes=size * sum(stash_bytes_per_sample(request, layer) for layer in layers),
        kept_bytes=size * sum(kept_bytes_per_sample(request, layer, recomputed=layer.id in again) for layer in layers),
        input_bytes=received_bytes,
        output_bytes=sent_bytes,
        workspace_bytes=float(max(layer.workspace_bytes for layer in layers)),
    )


def _exchanged_bytes(job: Job) -> dict[tuple[int, int, str], float]:
    """By device, stage and direction (`in`, `out`), the activations of a micro-batch that reach or leave a device."""
    sizes: dict[tuple[int, int, str], dict[int, float]] = defaultdict(dict)
    for message in job.lowered.messages:
        source, target = job.devices[message.source], job.devices[message.target]
        if source != target and message.made_by.kind == "F":
            sizes[target, message.read_by.stage, "in"][message.made_by.stage] = message.size_bytes
            sizes[source, message.made_by.stage, "out"][message.read_by.stage] = message.size_bytes
    return {place: sum(by_stage.values()) for place, by_stage in sizes.items()}


def _link_uses(job: Job, devices: Sequence[str]) -> Iterator[LinkUse]:
    """Both directions of everything that joins devices: transfers, then rings."""
    seconds: dict[tuple[int, int], float] = {}
    sizes: dict[tuple[int, int], float] = {}
    for message, price in zip(job.lowered.messages, job.prices, strict=True):
        way = job.devices[message.source], job.devices[message.target]
        if way[0] != way[1]:
            seconds[way] = seconds.get(way, 0.0) + price.seconds
            sizes[way] = sizes.get(way, 0.0) + message.size_bytes
    for bucket in job.buckets:
        ring = [job.devices[track] for track in bucket.ring]
        for way in zip(ring, (*ring[1:], ring[0]), strict=True):
            seconds[way] = seconds.get(way, 0.0) + bucket.price.seconds
            sizes[way] = sizes.get(way, 0.0) + ring_bytes(len(bucket.ring), bucket.size_bytes)
    for source, target in sorted(seconds):
        way = source, target
        yield LinkUse(devices[source], devices[target], seconds[way], sizes[way])
