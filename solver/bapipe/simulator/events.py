"""When every step of lowered orders starts: a replay event by event, for plans whose links or devices meet.

An operation starts when its device is free, what it reads has arrived, and the operation of its stage and micro-batch
before it has ended. Transfers are ready when their operation has ended, and two devices that stop for each other when
both have come that far. Over a streaming link of g chunks a transfer is ready when its operation, of d seconds from s,
has made the first: chunk j is there at s + j·d/g, and follows chunk j - 1. The operation that reads it starts once it
can run through, chunk by chunk, without waiting for the next one. Whoever is ready first is served first by every link
direction and network card that it needs; at the same instant the order is (micro-batch, stage, kind). Gradients are
reduced in buckets over the same links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from bapipe.errors import Fault, InvalidInputError
from bapipe.lowering import Exchange, Lowered, Message, Operation

NAMED = 9
"""How many operations of a cycle a fault names; it counts the others."""

Resource = Hashable
"""A direction of a link, or a network card: one transfer at a time."""


class Price(NamedTuple):
    """What something takes: seconds, whatever it keeps busy meanwhile, and in how many equal chunks it goes."""

    seconds: float
    resources: tuple[Resource, ...]
    chunks: int = 1


class Part(NamedTuple):
    """A device's part in a reduction: `operation` made its last gradient `after_s` after its start; None: the end of
    the device's order."""

    device: int
    operation: Operation | None
    after_s: float


@dataclass(frozen=True)
class Bucket:
    """Gradients that the devices of a ring reduce together, once each has all its `parts`."""

    stage: int
    size_bytes: float
    price: Price
    ring: tuple[int, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Job:
    """Lowered orders and what everything takes. `seconds[d]` are those of the operations of order d, without the
    exchanges between; `prices` follow the messages, `earlier` says which operation of its own device each awaits.
    `devices[d]` is the number of the device that executes order d: two orders may share one, as engines of its own.
    `port_s`: what an operation needs of the memory port that its device's engines share.
    """

    lowered: Lowered
    seconds: tuple[dict[Operation, float], ...]
    prices: tuple[Price, ...]
    earlier: dict[Operation, Operation]
    buckets: tuple[Bucket, ...]
    optimizer_s: tuple[float, ...]
    devices: tuple[int, ...]
    num_microbatches: int
    port_s: dict[Operation, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Occupied:
    """Until when devices, links and cards are taken by what came before."""

    device_s: tuple[float, ...]
    resource_s: dict[Resource, float]


@dataclass(frozen=True)
class Replayed:
    """Starts and ends of operations and of transfers that take time (by number), and starts of buckets.

    `compute_end_s` is when a device has finished its order, `optimizer_start_s` when its gradients are reduced, too.
    """

    starts_s: dict[Operation, float]
    ends_s: dict[Operation, float]
    sent_s: dict[int, tuple[float, float]]
    reduced_s: tuple[float, ...]
    compute_end_s: tuple[float, ...]
    optimizer_start_s: tuple[float, ...]
    optimizer_end_s: tuple[float, ...]
    occupied: Occupied


def replay_events(
    job: Job, before: Occupied | None = None, pointer: Callable[[int, Operation], str] = lambda order, what: ""
) -> Replayed:
    """Replays one step of `job`. `pointer` tells where in the plan an operation of one of its orders stands.

    Raises:
        InvalidInputError: `deadlock`, for each device that never reaches the end of its order, with the cycle.
    """
    state = State(job, before)
    state.run()
    stuck = state.stuck(pointer)
    if stuck:
        raise InvalidInputError(stuck)
    return state.replayed()


What = Exchange | int | tuple[int, int] | tuple[Operation, int]
"""What happens: an exchange, a message (below 0: a bucket), or a chunk of a message, or a part of an operation."""

Event = tuple[float, int, int, str, int, What]
"""When, then micro-batch, stage, kind and number, by which events at one instant are ordered, and what happens."""


@dataclass
class _Meeting:
    """Two devices on their way to an exchange."""

    present: dict[int, float] = field(default_factory=dict)


class State:
    """A job while it is replayed."""

    def __init__(self, job: Job, before: Occupied | None) -> None:
        orders = job.lowered.orders
        self.job, self.orders, self.messages = job, orders, job.lowered.messages
        self.free_s = list(before.device_s) if before else [0.0] * len(orders)
        self.resource_s: dict[Resource, float] = defaultdict(float, before.resource_s if before else {})
        self.places = [0] * len(orders)
        self.starts_s: dict[Operation, float] = {}
        self.ends_s: dict[Operation, float] = {}
        self.arrivals_s: dict[int, float] = {}
        self.sent_s: dict[int, tuple[float, float]] = {}
        self.meetings: dict[Exchange, _Meeting] = defaultdict(_Meeting)
        self.parked = [False] * len(orders)
        self.events: list[Event] = []
        self.ready_s: list[list[float]] = [[] for _ in job.buckets]
        self.reduced_s = [0.0] * len(job.buckets)
        self.awaited: dict[Operation | int, list[tuple[int, float]]] = defaultdict(list)
        for number, bucket in enumerate(job.buckets):
            for part in bucket.parts:
                key = part.device if part.operation is None else part.operation
                self.awaited[key].append((number, part.after_s))

    def run(self) -> None:
        """Serves whoever is ready, in the order of time, until nothing is."""
        self.advance(range(len(self.orders)))
        while self.events:
            now_s, _, _, _, number, what = heappop(self.events)
            if isinstance(what, Exchange):
                self.advance(self.exchange(what, now_s))
            elif isinstance(what, tuple):
                self.at_port(-1 - number, now_s)
            elif what < 0:
                self.reduced_s[-1 - what] = self.reserve(self.job.buckets[-1 - what].price, now_s)
            else:
                self.arrivals_s[what] = self.transfer(what, now_s)
                self.advance([self.messages[what].target])

    def transfer(self, number: int, now_s: float) -> float:
        """Sends a message that is ready now; returns when the operation that reads it may start.

        In g chunks of c seconds each, made by an operation of d seconds from s and read by one of r seconds: with the
        first chunk sent at b, chunk j arrives at max(b + j·c, s + j·d/g + c), and the reader, which needs it j - 1
        chunks after its start, may start at the largest of b + c, b + g·c - (g-1)·r/g, s + d + c - (g-1)·r/g.
        """
        message, price = self.messages[number], self.job.prices[number]
        if message.manner != "streaming":
            start_s = self.reserve(price, now_s)
            self.sent_s[number] = start_s, start_s + price.seconds
            return start_s + price.seconds
        made_s = self.ends_s[message.made_by]
        chunk_s = price.seconds / price.chunks
        start_s = self.reserve(price, now_s)
        end_s = max(start_s + price.seconds, made_s + chunk_s)
        for resource in price.resources:
            self.resource_s[resource] = end_s
        if price.seconds:
            self.sent_s[number] = start_s, end_s
        meanwhile_s = self.job.seconds[message.target][message.read_by] * (price.chunks - 1) / price.chunks
        return max(start_s + chunk_s, end_s - meanwhile_s)

    def reserve(self, price: Price, now_s: float) -> float:
        """The start of something that is ready now, behind all that came before it."""
        start_s = max(now_s, *(self.resource_s[resource] for resource in price.resources)) if price.resources else now_s
        for resource in price.resources:
            self.resource_s[resource] = start_s + price.seconds
        return start_s

    def exchange(self, step: Exchange, now_s: float) -> list[int]:
        """Both devices go on once all messages of the exchange have passed; returns their numbers."""
        end_s = now_s
        for number in step.messages:
            self.arrivals_s[number] = self.transfer(number, now_s)
            end_s = max(end_s, self.arrivals_s[number])
        pair = list(self.meetings[step].present)
        for device in pair:
            self.free_s[device] = end_s
            self.places[device] += 1
            self.parked[device] = False
        return pair

    def advance(self, devices: Sequence[int]) -> None:
        """Lets devices, and those that they set going, run as far as is known."""
        waiting = list(reversed(devices))
        while waiting:
            waiting += self.run_device(waiting.pop())

    def run_device(self, device: int) -> list[int]:
        """Executes steps until one has to wait; returns the devices for which something has arrived."""
        woken: list[int] = []
        order = self.orders[device]
        while not self.parked[device] and self.places[device] < len(order):
            step = order[self.places[device]]
            if isinstance(step, Exchange):
                self.meet(device, step)
            elif not self.execute(device, step, woken):
                break
        if self.places[device] == len(order) and device in self.awaited:
            self.complete(device, self.free_s[device], self.free_s[device])
        return woken

    def meet(self, device: int, step: Exchange) -> None:
        present = self.meetings[step].present
        present[device] = self.free_s[device]
        self.parked[device] = True
        if len(present) == 2:
            first = min(step.messages, key=lambda number: self.messages[number].key)
            heappush(self.events, (max(present.values()), *self.messages[first].key, first, step))

    def execute(self, device: int, operation: Operation, woken: list[int]) -> bool:
        """Starts an operation if all that it awaits is there."""
        start_s = self.free_s[device]
        before = self.job.earlier.get(operation)
        if before is not None and before not in self.ends_s:
            return False
        for number in self.job.lowered.reads.get(operation, ()):
            arrival_s = self.arrivals_s.get(number)
            if arrival_s is None:
                return False
            start_s = max(start_s, arrival_s)
        if self.job.port_s.get(operation):
            self.parked[device] = True
            key = operation.microbatch, operation.stage, operation.kind
            heappush(self.events, (start_s, *key, -1 - device, (operation, 0)))
            return False
        self.end(device, operation, start_s, start_s + self.job.seconds[device][operation], woken)
        return True

    def at_port(self, device: int, now_s: float) -> None:
        """An operation that is ready but for its turn at the memory port: it takes the larger of its own time and what
        is left of the turn.
        """
        operation = self.next_operation(device)
        turn_s, own_s = self.job.port_s[operation], self.job.seconds[device][operation]
        start_s = self.reserve(Price(turn_s, (("memory", self.job.devices[device]),)), now_s)
        woken: list[int] = []
        self.parked[device] = False
        self.end(device, operation, now_s, max(now_s + own_s, start_s + turn_s), woken)
        self.advance([device, *woken])

    def end(self, device: int, operation: Operation, start_s: float, end_s: float, woken: list[int]) -> None:
        """Executes an operation from start to end."""
        self.starts_s[operation], self.ends_s[operation] = start_s, end_s
        self.free_s[device] = end_s
        self.places[device] += 1
        self.complete(operation, start_s, end_s, self.job.seconds[device][operation])
        self.send(operation, woken)

    def send(self, operation: Operation, woken: list[int]) -> None:
        start_s, end_s = self.starts_s[operation], self.ends_s[operation]
        for number in self.job.lowered.sends.get(operation, ()):
            message = self.messages[number]
            if message.manner == "free":
                self.arrivals_s[number] = end_s
                woken.append(message.target)
            else:
                chunks = self.job.prices[number].chunks
                ready_s = end_s if chunks == 1 else start_s + (end_s - start_s) / chunks
                heappush(self.events, (ready_s, *message.key, number, number))

    def complete(self, key: Operation | int, start_s: float, end_s: float, own_s: float = 0.0) -> None:
        """Gradients that are complete within an operation, or with an order. Where an operation of `own_s` had to wait
        meanwhile they are, too: as far on the way from its start to its end.
        """
        waited = (end_s - start_s) / own_s if own_s else 1.0
        for number, after_s in self.awaited.pop(key, ()):
            ready_s = self.ready_s[number]
            ready_s.append(start_s + after_s * waited)
            bucket = self.job.buckets[number]
            if len(ready_s) == len(bucket.parts):
                heappush(self.events, (max(ready_s), self.job.num_microbatches, bucket.stage, "G", number, -1 - number))

    def replayed(self) -> Replayed:
        """The finished step."""
        done_s = list(self.free_s)
        for bucket, start_s in zip(self.job.buckets, self.reduced_s, strict=True):
            for device in bucket.ring:
                done_s[device] = max(done_s[device], start_s + bucket.price.seconds)
        last_s: dict[int, float] = {}
        for device, end_s in zip(self.job.devices, done_s, strict=True):
            last_s[device] = max(end_s, last_s.get(device, 0.0))
        done_s = [last_s[device] for device in self.job.devices]
        ends_s = tuple(start + seconds for start, seconds in zip(done_s, self.job.optimizer_s, strict=True))
        return Replayed(
            self.starts_s,
            self.ends_s,
            self.sent_s,
            tuple(self.reduced_s),
            tuple(self.free_s),
            tuple(done_s),
            ends_s,
            Occupied(ends_s, dict(self.resource_s)),
        )

    def stuck(self, pointer: Callable[[int, Operation], str]) -> list[Fault]:
        """A fault for each order that waits forever, with the cycle that it waits for."""
        waits = {d: self.wait(d) for d, order in enumerate(self.orders) if self.places[d] < len(order)}
        cycles = _cycles(waits)
        return [
            Fault(
                "deadlock",
                f"{what} waits forever for {awaited}, in the cycle {cycles[d]}; "
                "order what is awaited before what awaits it",
                pointer(d, self.next_operation(d)),
            )
            for d, (what, awaited, _) in waits.items()
        ]

    def next_operation(self, number: int) -> Operation:
        """The operation that never starts; the last, if only a transfer is left."""
        order, place = self.orders[number], self.places[number]
        coming = [step for step in order[place:] if isinstance(step, Operation)]
        return coming[0] if coming else next(step for step in reversed(order) if isinstance(step, Operation))

    def wait(self, device: int) -> tuple[str, str, int]:
        """What a stuck device is at, what it awaits, and the device that has to do that."""
        step = self.orders[device][self.places[device]]
        if isinstance(step, Exchange):
            message = self.messages[step.messages[0]]
            other = message.target if device == message.source else message.source
            return _exchange_text(self.messages, step, device), f"device {other} to come to that", other
        before = self.job.earlier.get(step)
        if before is not None and before not in self.ends_s:
            return str(step), str(before), device
        missing = next(n for n in self.job.lowered.reads[step] if n not in self.arrivals_s)
        return str(step), str(self.messages[missing].made_by), self.messages[missing].source


def _cycles(waits: dict[int, tuple[str, str, int]]) -> dict[int, str]:
    """For each device that waits, the cycle that it waits for in the end, in words."""
    texts: dict[int, str] = {}
    for device in waits:
        path: dict[int, None] = {}
        while device not in path and device not in texts:
            path[device] = None
            device = waits[device][2]
        if device in path:
            ring = list(path)
            names = [waits[number][0] for number in [*ring[ring.index(device) :], device]]
            if len(names) > NAMED:
                names[NAMED - 1 : -1] = [f"{len(names) - NAMED} more"]
            texts[device] = " -> ".join(names)
        texts |= dict.fromkeys(path, texts[device])
    return texts


def _exchange_text(messages: Sequence[Message], step: Exchange, device: int) -> str:
    words = [
        f"{'send' if messages[number].source == device else 'receive'} of {messages[number].made_by}"
        for number in step.messages
    ]
    return " with ".join(words)
