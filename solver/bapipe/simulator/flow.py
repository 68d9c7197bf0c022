"""A replay of operations part by part: finite FIFOs, memory ports that engines share, losses, boards that die.

An operation of g parts makes a g-th of its output with each, and needs a g-th of its input for each; it holds its
engine from its first part to its last, and waits in between where it must:

- for the chunk of its input that a part reads;
- for room in the FIFO in front of a link: the chunk made d chunks earlier has left, d being the FIFO's depth;
- where two engines share the memory off chip, for the port, which serves one part at a time: a part takes the larger of
  its own time and what is left of its turn at the port.

Everything is a maximum of sums, so that with a fixed order on every resource nothing gets slower when something gets
faster. Orders are first come, first served, or those of an earlier replay (`granted`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from bapipe.errors import InvalidInputError
from bapipe.lowering import Exchange, Operation
from bapipe.simulator.events import Job, Price, Replayed, Resource, State
from bapipe.simulator.turns import Granted, Turns

NEVER = float("inf")


@dataclass(frozen=True)
class Flow:
    """How a job's operations run part by part; what is left out runs in one part, without limit.

    `depths`: chunks that the FIFO in front of a link direction holds. `tries`: how often a chunk (message, chunk) is
    sent until it arrives. `dies_s`: when a device (by number) stops for ever: what it computes, sends or receives then
    never ends. `order`: turns to be granted as before.
    """

    parts: Mapping[Operation, int]
    depths: Mapping[Resource, int] = field(default_factory=dict)
    tries: Callable[[int, int], int] = lambda message, chunk: 1
    dies_s: Mapping[int, float] = field(default_factory=dict)
    order: Granted | None = None


@dataclass(frozen=True)
class Flowed:
    """A replay with its FIFOs, by link direction: when each chunk of several was made and had left, the bytes that were
    put in, that arrived, and that were sent again, and the seconds that took; the turns as they were granted; and
    whether every device came to the end of its order, reductions and update. `job` is the job as far as it came: where
    it never ends, with the reductions that ended, and without updates. `stopped`: the devices whose death that was.
    """

    job: Job
    replayed: Replayed
    made_s: Mapping[Resource, Sequence[float]]
    left_s: Mapping[Resource, Sequence[float]]
    sent_bytes: Mapping[Resource, float]
    received_bytes: Mapping[Resource, float]
    resent_bytes: Mapping[Resource, float]
    busy_s: Mapping[Resource, float]
    granted: Granted
    finished: bool
    stopped: tuple[int, ...]


def replay_flow(job: Job, flow: Flow, pointer: Callable[[int, Operation], str] = lambda order, what: "") -> Flowed:
    """Replays one step of `job`, part by part.

    Raises:
        InvalidInputError: `deadlock`, as `replay_events`; not where a device has died.
    """
    state = _FlowState(job, flow)
    state.run()
    replayed = state.replayed()
    stopped = state.stopped(replayed) if flow.dies_s else ()
    if not state.finished() and not stopped:
        raise InvalidInputError(state.stuck(pointer))
    if stopped:
        replayed = state.cut_short()
    return Flowed(
        job=state.job,
        replayed=replayed,
        made_s=state.made_s,
        left_s=state.left_s,
        sent_bytes=state.sent_bytes,
        received_bytes=state.received_bytes,
        resent_bytes=state.resent_bytes,
        busy_s=state.busy_s,
        granted=state.turns.granted,
        finished=not stopped,
        stopped=stopped,
    )


class _FlowState(State):
    """A job while it is replayed part by part."""

    def __init__(self, job: Job, flow: Flow) -> None:
        super().__init__(job, None)
        self.flow = flow
        self.turns = Turns(self.resource_s, flow.order)
        self.done = [0] * len(self.orders)
        executed = (step for order in self.orders for step in order if isinstance(step, Operation))
        self.numbers = {operation: number for number, operation in enumerate(executed)}
        self.chunks_s: list[list[float]] = [[] for _ in self.messages]
        self.made_s: dict[Resource, list[float]] = defaultdict(list)
        self.left_s: dict[Resource, list[float]] = defaultdict(list)
        self.sent_bytes: dict[Resource, float] = defaultdict(float)
        self.received_bytes: dict[Resource, float] = defaultdict(float)
        self.resent_bytes: dict[Resource, float] = defaultdict(float)
        self.busy_s: dict[Resource, float] = defaultdict(float)
        sharing = [device for device in set(job.devices) if job.devices.count(device) > 1]
        self.shared = [device in sharing for device in job.devices]
        self.dies_s = [flow.dies_s.get(device, NEVER) for device in job.devices]
        self.refused: set[int] = set()
        self.reduced: set[int] = set()

    def run(self) -> None:
        """Serves whoever is ready, in the order of time, until nothing is."""
        self.advance(range(len(self.orders)))
        while self.events:
            now_s, _, _, _, number, what = heappop(self.events)
            if isinstance(what, Exchange):
                self.advance(self.exchange(what, now_s))
            elif isinstance(what, int):
                self.reduce(-1 - what, now_s)
            elif isinstance(what[0], Operation):
                self.part_at_port(-1 - number, what[0], what[1], now_s)
            else:
                self.send_chunk(number, what[1], now_s)

    def finished(self) -> bool:
        """Whether every device came to the end of its order."""
        return all(place == len(order) for place, order in zip(self.places, self.orders, strict=True))

    def stopped(self, replayed: Replayed) -> tuple[int, ...]:
        """The devices whose death keeps the step from its end: those at which something stopped, those that were dead
        when nothing moved any more, and those whose weights were not updated.
        """
        still_s = max((*self.ends_s.values(), *(end_s for _, end_s in self.sent_s.values())), default=0.0)
        dead = {self.job.devices[track] for track in self.refused}
        for track, at_s in enumerate(self.dies_s):
            complete = self.places[track] == len(self.orders[track])
            if at_s < (replayed.optimizer_end_s[track] if self.finished() else still_s if not complete else 0.0):
                dead.add(self.job.devices[track])
        return tuple(sorted(dead))

    def cut_short(self) -> Replayed:
        """What was replayed, with the reductions that ended only, and without updates."""
        ended = [
            number
            for number in sorted(self.reduced)
            if all(
                self.reduced_s[number] + self.job.buckets[number].price.seconds <= self.dies_s[track]
                for track in self.job.buckets[number].ring
            )
        ]
        buckets = tuple(self.job.buckets[number] for number in ended)
        self.job = replace(self.job, buckets=buckets, optimizer_s=(0.0,) * len(self.orders))
        self.reduced_s = [self.reduced_s[number] for number in ended]
        return self.replayed()

    def outlives(self, tracks: Iterable[int], end_s: float) -> bool:
        """Whether the devices of all `tracks` live until `end_s`; who does not is noted."""
        dead = [track for track in tracks if end_s > self.dies_s[track]]
        self.refused.update(dead)
        return not dead

    def reduce(self, number: int, now_s: float) -> None:
        """Starts a bucket."""

        def grant(start_s: float) -> None:
            self.reduced_s[number] = start_s
            self.reduced.add(number)

        self.turns.claim(("bucket", number, 0), self.job.buckets[number].price, now_s, grant)

    def exchange(self, step: Exchange, now_s: float) -> list[int]:
        """Two devices stop for each other, if both live until all has passed."""
        end_s = now_s + max(self.job.prices[number].seconds * self.flow.tries(number, 0) for number in step.messages)
        return super().exchange(step, now_s) if self.outlives(self.meetings[step].present, end_s) else []

    def transfer(self, number: int, now_s: float) -> float:
        """A message of an exchange, as often as it is lost and once more."""
        price, size_bytes = self.job.prices[number], self.messages[number].size_bytes
        tries = self.flow.tries(number, 0)
        seconds = price.seconds * tries
        start_s = self.reserve(price._replace(seconds=seconds), now_s)
        self.sent_s[number] = start_s, start_s + seconds
        self.sent_bytes[price.resources[0]] += size_bytes
        self.count(price.resources[0], size_bytes, tries, seconds)
        return start_s + seconds

    def send_chunk(self, number: int, chunk: int, now_s: float) -> None:
        """Sends a chunk that has been made."""
        message, price = self.messages[number], self.job.prices[number]
        tries = self.flow.tries(number, chunk)
        seconds = price.seconds / price.chunks * tries

        def grant(start_s: float) -> None:
            end_s = start_s + seconds
            if not self.outlives((message.source, message.target), end_s):
                return
            if price.seconds:
                first_s = self.sent_s[number][0] if chunk else start_s
                self.sent_s[number] = first_s, end_s
            self.chunks_s[number].append(end_s)
            if chunk == price.chunks - 1:
                self.arrivals_s[number] = end_s
            if self.queues(price):
                self.left_s[price.resources[0]].append(end_s)
            self.count(price.resources[0], message.size_bytes / price.chunks, tries, seconds)
            self.advance([message.source, message.target])

        self.turns.claim(("chunk", number, chunk), Price(seconds, price.resources), now_s, grant)

    def queues(self, price: Price) -> bool:
        """Whether a message passes through a FIFO: what is sent whole goes from memory, unless there is one."""
        return price.chunks > 1 or price.resources[0] in self.flow.depths

    def count(self, way: Resource, size_bytes: float, tries: int, seconds: float) -> None:
        """Counts what has arrived."""
        self.received_bytes[way] += size_bytes
        self.resent_bytes[way] += (tries - 1) * size_bytes
        self.busy_s[way] += seconds

    def execute(self, device: int, operation: Operation, woken: list[int]) -> bool:
        """Executes the parts of an operation that can start."""
        before = self.job.earlier.get(operation)
        if before is not None and before not in self.ends_s:
            return False
        parts = self.flow.parts.get(operation, 1)
        while operation not in self.ends_s:
            start_s = self.part_start_s(device, operation, self.done[device], parts)
            if start_s is None:
                return False
            port_s = self.job.port_s.get(operation, 0.0)
            if self.shared[device] and port_s:
                self.parked[device] = True
                self.heap(start_s, device, operation)
                return False
            self.finish(device, operation, start_s, start_s + self.job.seconds[device][operation] / parts, woken)
            if self.parked[device]:
                return False
        return True

    def heap(self, start_s: float, device: int, operation: Operation) -> None:
        """Asks for the port at `start_s`."""
        key = operation.microbatch, operation.stage, operation.kind
        heappush(self.events, (start_s, *key, -1 - device, (operation, self.done[device])))

    def part_at_port(self, device: int, operation: Operation, part: int, now_s: float) -> None:
        """A part that is ready but for its turn at the memory port."""
        parts = self.flow.parts.get(operation, 1)
        turn_s, own_s = self.job.port_s[operation] / parts, self.job.seconds[device][operation] / parts
        port = Price(turn_s, (("memory", self.job.devices[device]),))

        def grant(start_s: float) -> None:
            woken: list[int] = []
            self.parked[device] = False
            self.finish(device, operation, now_s, max(now_s + own_s, start_s + turn_s), woken)
            self.advance([device, *woken])

        self.turns.claim(("part", self.numbers[operation], part), port, now_s, grant)

    def part_start_s(self, device: int, operation: Operation, part: int, parts: int) -> float | None:
        """When a part can start; None: something that it awaits is not known yet."""
        start_s = self.free_s[device]
        for number in self.job.lowered.reads.get(operation, ()):
            arrival_s = self.arrival_s(number, part, parts)
            if arrival_s is None:
                return None
            start_s = max(start_s, arrival_s)
        added: dict[Resource, int] = {}
        for number in self.job.lowered.sends.get(operation, ()):
            room_s = self.room_s(number, part, parts, added)
            if room_s is None:
                return None
            start_s = max(start_s, room_s)
        return start_s

    def arrival_s(self, number: int, part: int, parts: int) -> float | None:
        """When what a part reads of a message is there."""
        if self.messages[number].manner not in ("overlapped", "streaming"):
            return self.arrivals_s.get(number)
        needed = -(-(part + 1) * self.job.prices[number].chunks // parts)
        arrived = self.chunks_s[number]
        return arrived[needed - 1] if needed <= len(arrived) else None

    def room_s(self, number: int, part: int, parts: int, added: dict[Resource, int]) -> float | None:
        """When the FIFO has room for what a part adds to a message, behind what it has `added` to others."""
        price = self.job.prices[number]
        if not price.resources or self.messages[number].manner == "free":
            return 0.0
        fifo = price.resources[0]
        depth = self.flow.depths.get(fifo)
        more = (part + 1) * price.chunks // parts - part * price.chunks // parts
        if depth is None or not more:
            return 0.0
        added[fifo] = added.get(fifo, 0) + more
        last = len(self.made_s[fifo]) + added[fifo] - 1 - depth
        left = self.left_s[fifo]
        if last < 0:
            return 0.0
        return left[last] if last < len(left) else None

    def finish(self, device: int, operation: Operation, start_s: float, end_s: float, woken: list[int]) -> None:
        """Ends a part, and with the last one the operation; a device that dies before that never ends it."""
        if not self.outlives((device,), end_s):
            self.parked[device] = True
            return
        part, parts = self.done[device], self.flow.parts.get(operation, 1)
        self.starts_s.setdefault(operation, start_s)
        self.free_s[device] = end_s
        self.done[device] += 1
        for number in self.job.lowered.sends.get(operation, ()):
            self.hand_on(number, part, parts, end_s, woken)
        if self.done[device] == parts:
            self.done[device] = 0
            self.ends_s[operation] = end_s
            self.places[device] += 1
            self.complete(operation, self.starts_s[operation], end_s, self.job.seconds[device][operation])

    def wait(self, device: int) -> tuple[str, str, int]:
        """As for whole operations; a part may also wait for room in a FIFO that is smaller than what it makes."""
        step = self.orders[device][self.places[device]]
        if isinstance(step, Operation) and self.job.earlier.get(step, step) in {step, *self.ends_s}:
            reads = self.job.lowered.reads.get(step, ())
            if all(number in self.arrivals_s for number in reads):
                return str(step), "room in the FIFO behind it", device
        return super().wait(device)

    def hand_on(self, number: int, part: int, parts: int, end_s: float, woken: list[int]) -> None:
        """Puts the chunks that a part has completed into the FIFO."""
        message, price = self.messages[number], self.job.prices[number]
        if message.manner == "free":
            if part == parts - 1:
                self.arrivals_s[number] = end_s
                woken.append(message.target)
            return
        for chunk in range(part * price.chunks // parts, (part + 1) * price.chunks // parts):
            if self.queues(price):
                self.made_s[price.resources[0]].append(end_s)
            self.sent_bytes[price.resources[0]] += message.size_bytes / price.chunks
            heappush(self.events, (end_s, *message.key, number, (number, chunk)))
