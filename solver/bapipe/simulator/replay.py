"""When every operation of a step starts, given the order of each device: the definition of a plan's time.

An operation starts when its device is free and its inputs have arrived. A link carries one transfer at a time in each
direction, first come first served, and keeps no device busy. Each direction is fed by one device, in the order of its
operations, so following the devices as far as their inputs are known, in any order, gives the exact times without a
queue of events. After its operations a device reduces gradients, where its stage has replicas, and updates its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bapipe.cost.pipeline import PipelineCost, StageCost
from bapipe.errors import Fault, InvalidInputError

AllReduce = Literal["overlapped", "blocking"]
Order = Sequence[int]
"""Operations as integers: `2k` is the forward of micro-batch k, `2k + 1` its backward."""

NOT_YET = -1.0


@dataclass(frozen=True)
class Busy:
    """Until when devices, and the two directions of the link behind and before each, are taken by what came before."""

    device_s: tuple[float, ...]
    links_s: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Reduction:
    """One bucket of a stage's gradients on the ring of its replicas."""

    stage: int
    size_bytes: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Track:
    """One device over a step. `starts_s` follow `order`; pairs are (forward or activations, backward or gradients).

    `seconds` are those of an operation, `send_s` those of the transfer after it. `sends_s` are the starts of the
    transfers, in the order of the operations; transfers that take no time are not recorded.
    """

    device: str
    stage: int
    order: Order
    seconds: tuple[float, float]
    send_s: tuple[float, float]
    optimizer_s: float
    starts_s: list[float]
    sends_s: tuple[list[float], list[float]]
    compute_end_s: float
    optimizer_start_s: float
    optimizer_end_s: float

    @property
    def compute_s(self) -> float:
        """Seconds of all operations."""
        backwards = sum(operation & 1 for operation in self.order)
        return (len(self.order) - backwards) * self.seconds[0] + backwards * self.seconds[1]

    @property
    def span_bubble_s(self) -> float:
        """Idle seconds between the first and the last operation."""
        if not self.order:
            return 0.0
        return max(0.0, self.compute_end_s - self.starts_s[0] - self.compute_s)


@dataclass(frozen=True)
class Timeline:
    """A replayed step: one track a device in pipeline order, the all-reduces, and what is busy until when."""

    tracks: tuple[Track, ...]
    reductions: tuple[Reduction, ...]
    busy: Busy

    @property
    def step_time_s(self) -> float:
        """The end of the last thing that any device does."""
        return max(track.optimizer_end_s for track in self.tracks)


@dataclass(slots=True)
class _Worker:
    """A device while it is replayed. Pairs are (activations or forward, gradients or backward)."""

    stage: int
    replica: int
    order: Order
    seconds: tuple[float, float]
    inboxes: tuple[list[float], list[float]]
    outboxes: tuple[list[float], list[float]]
    send_s: tuple[float, float]
    free_s: float
    link_free_s: list[float]
    starts_s: list[float] = field(default_factory=list)
    sends_s: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))


def replay(
    cost: PipelineCost,
    orders: Sequence[Order],
    num_microbatches: int,
    *,
    all_reduce: AllReduce = "overlapped",
    busy: Busy | None = None,
    order_numbers: Sequence[int] | None = None,
) -> Timeline:
    """Replays one step of `orders`, one for each of `cost.devices`, each complete and on the right device.

    `busy`: what the step before left, with times from the same origin. `order_numbers` are the numbers of the orders in
    the plan, for pointers.

    Raises:
        InvalidInputError: `deadlock`, for each device that never reaches the end of its order.
    """
    workers = _workers(cost, orders, num_microbatches, busy)
    _run_all(workers)
    numbers = range(len(workers)) if order_numbers is None else order_numbers
    faults = [
        _deadlock(worker, number, len(cost.stages))
        for worker, number in zip(workers, numbers, strict=True)
        if len(worker.starts_s) < len(worker.order)
    ]
    if faults:
        raise InvalidInputError(faults)
    return _timeline(cost, workers, all_reduce)


def _workers(cost: PipelineCost, orders: Sequence[Order], num_microbatches: int, busy: Busy | None) -> list[_Worker]:
    count = len(cost.stages)
    given = [0.0] * num_microbatches
    activations = [given, *([NOT_YET] * num_microbatches for _ in range(count - 1))]
    gradients = [[NOT_YET] * num_microbatches for _ in range(count)]
    unread = [NOT_YET] * num_microbatches
    workers: list[_Worker] = []
    for s, stage in enumerate(cost.stages):
        last = s == count - 1
        outboxes = (gradients[s] if last else activations[s + 1], gradients[s - 1] if s else unread)
        send_s = (0.0 if last else cost.boundaries[s].forward_s, cost.boundaries[s - 1].backward_s if s else 0.0)
        for r, replica in enumerate(stage.replicas):
            d = len(workers)
            free_s, links_s = (busy.device_s[d], busy.links_s[d]) if busy else (0.0, (0.0, 0.0))
            seconds = (replica.forward_s, replica.backward_s)
            inboxes = (activations[s], gradients[s])
            workers.append(_Worker(s, r, orders[d], seconds, inboxes, outboxes, send_s, free_s, list(links_s)))
    return workers


def _run_all(workers: list[_Worker]) -> None:
    """Lets every worker run as far as it can, down the pipeline and up again, until none gets any further."""
    running = [(_run(worker), worker) for worker in workers]
    progress, done = True, 0
    while progress:
        running = [(run, worker) for run, worker in reversed(running) if next(run, None) is not None]
        before, done = done, sum(len(worker.starts_s) for worker in workers)
        progress = bool(running) and done > before


def _run(worker: _Worker) -> Iterator[bool]:
    """Executes the worker's order; yields whenever an input is not there yet, and goes on where it stood."""
    inboxes, outboxes, seconds, send_s = worker.inboxes, worker.outboxes, worker.seconds, worker.send_s
    link_free_s, sends_s, started = worker.link_free_s, worker.sends_s, worker.starts_s.append
    free_s = worker.free_s
    for operation in worker.order:
        kind, microbatch = operation & 1, operation >> 1
        inbox = inboxes[kind]
        while (arrival_s := inbox[microbatch]) < 0.0:
            yield True
        if arrival_s > free_s:
            free_s = arrival_s
        started(free_s)
        free_s += seconds[kind]
        if send_s[kind]:
            sent_s = link_free_s[kind]
            if sent_s < free_s:
                sent_s = free_s
            sends_s[kind].append(sent_s)
            outboxes[kind][microbatch] = link_free_s[kind] = sent_s + send_s[kind]
        else:
            outboxes[kind][microbatch] = free_s
    worker.free_s = free_s


def _deadlock(worker: _Worker, number: int, num_stages: int) -> Fault:
    place = len(worker.starts_s)
    operation = worker.order[place]
    microbatch = operation >> 1
    if operation & 1 == 0:
        awaited = f"{worker.stage - 1}F{microbatch}"
    elif worker.stage == num_stages - 1:
        awaited = f"{worker.stage}F{microbatch}"
    else:
        awaited = f"{worker.stage + 1}B{microbatch}"
    name = f"{worker.stage}{'FB'[operation & 1]}{microbatch}"
    detail = (
        f"{name} waits forever for {awaited}, which comes too late in its own device's order; order {awaited} before"
    )
    return Fault("deadlock", detail, f"/schedule/orders/{number}/{place}")


def _timeline(cost: PipelineCost, workers: list[_Worker], all_reduce: AllReduce) -> Timeline:
    reductions: list[Reduction] = []
    tracks = []
    for s, stage in enumerate(cost.stages):
        mine = [worker for worker in workers if worker.stage == s]
        reduced = _reduce(s, stage, mine, all_reduce)
        reductions += reduced
        reduced_s = reduced[-1].end_s if reduced else 0.0
        tracks += [_track(stage, worker, reduced_s) for worker in mine]
    busy = Busy(
        tuple(track.optimizer_end_s for track in tracks),
        tuple((worker.link_free_s[0], worker.link_free_s[1]) for worker in workers),
    )
    return Timeline(tuple(tracks), tuple(reductions), busy)


def _reduce(number: int, stage: StageCost, workers: list[_Worker], all_reduce: AllReduce) -> list[Reduction]:
    """The buckets one after the other on the stage's ring, each once every replica has it."""
    result: list[Reduction] = []
    free_s = 0.0
    for b, bucket in enumerate(stage.buckets):
        ready_s = max(_bucket_ready_s(stage, worker, b, all_reduce) for worker in workers)
        start_s = max(free_s, ready_s)
        free_s = start_s + bucket.all_reduce_s
        result.append(Reduction(number, bucket.size_bytes, start_s, free_s))
    return result


def _bucket_ready_s(stage: StageCost, worker: _Worker, bucket: int, all_reduce: AllReduce) -> float:
    if all_reduce == "blocking" or not worker.order:
        return worker.free_s
    return worker.starts_s[-1] + stage.replicas[worker.replica].bucket_ready_s[bucket]


def _track(stage: StageCost, worker: _Worker, reduced_s: float) -> Track:
    replica = stage.replicas[worker.replica]
    start_s = max(worker.free_s, reduced_s)
    return Track(
        device=replica.device,
        stage=worker.stage,
        order=worker.order,
        seconds=worker.seconds,
        send_s=worker.send_s,
        optimizer_s=replica.optimizer_s,
        starts_s=worker.starts_s,
        sends_s=worker.sends_s,
        compute_end_s=worker.free_s,
        optimizer_start_s=start_s,
        optimizer_end_s=start_s + replica.optimizer_s,
    )
