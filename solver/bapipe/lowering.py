"""From the compute orders of a plan to orders with transfers: one set of rules for whoever executes or replays it.

1. The forward of a stage reads what the stages that feed it made of the same micro-batch; its backward (B, or I where
   it is split) reads the gradients of the stages that it feeds. What stays on a device is not sent.
2. Over a link that holds no device a transfer is no step of an order: it is on its way once its operation has ended, or
   over a streaming link while it runs, and is awaited by the operation that reads it.
3. A blocking link stops both devices. Between two operations a device sends what the first made, by target stage, and
   then receives what the second reads, by source stage.
4. Where two devices meet between the same operations in both directions, they exchange: `fused`, both ways at once;
   `ordered`, the activation before the gradient, so that whoever receives an activation receives before it sends.
   (If both sent first, each would wait for the other to receive.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Manner = Literal["free", "overlapped", "streaming", "fused", "ordered"]
"""How a transfer meets compute: not at all as it takes no time, beside it, in chunks while it is made and read, or
blocking it in exchanges of this kind."""

BACKWARDS = ("B", "I")
"""The kinds of operations that make the gradient of a stage's input."""


class Operation(NamedTuple):
    """`2F0`: stage, kind (F, B, I, W or R; O, a weight update after a backward) and micro-batch."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Route(NamedTuple):
    """A stage feeds another: bytes of activations for each micro-batch, and in training as many of gradients back."""

    source: int
    target: int
    size_bytes: float


class Message(NamedTuple):
    """What one operation made and another reads; `source` and `target` are the numbers of their orders."""

    made_by: Operation
    read_by: Operation
    source: int
    target: int
    size_bytes: float
    manner: Manner

    @property
    def key(self) -> tuple[int, int, str]:
        """Who goes first of those that are ready at one instant."""
        return self.made_by.microbatch, self.made_by.stage, self.made_by.kind


class Exchange(NamedTuple):
    """The numbers of the messages for which two devices stop at once."""

    messages: tuple[int, ...]


Step = Operation | Exchange


@dataclass(frozen=True)
class Lowered:
    """Orders with transfers, one a device.

    `reads` are the numbers of the messages that an operation awaits, `sends` of those that leave it without a step
    of their own.
    """

    orders: tuple[tuple[Step, ...], ...]
    messages: tuple[Message, ...]
    reads: dict[Operation, tuple[int, ...]]
    sends: dict[Operation, tuple[int, ...]]


def lower(
    orders: Sequence[Sequence[Operation]],
    routes: Sequence[Route],
    manner: Callable[[int, int, float], Manner],
    gates: Sequence[tuple[Operation, Operation]] = (),
) -> Lowered:
    """Adds the transfers to compute orders that hold every operation of a plan exactly once.

    `manner` says how so many bytes go from the device of one order to that of another. `gates`: operations of which
    the second awaits the first, which is of another order of the same device.
    """
    place = {operation: number for number, order in enumerate(orders) for operation in order}
    messages = (
        *_messages(place, routes, manner),
        *(Message(first, then, place[first], place[then], 0.0, "free") for first, then in gates),
    )
    reads: dict[Operation, list[int]] = defaultdict(list)
    sends: dict[Operation, list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        reads[message.read_by].append(number)
        if message.manner not in ("fused", "ordered"):
            sends[message.made_by].append(number)
    return Lowered(
        tuple(_with_exchanges(orders, messages)),
        messages,
        {operation: tuple(numbers) for operation, numbers in reads.items()},
        {operation: tuple(numbers) for operation, numbers in sends.items()},
    )


def earlier(operation: Operation, *, recomputed: bool) -> Operation | None:
    """The operation of the same stage and micro-batch that comes just before `operation`; None for a forward.

    `recomputed`: the stage has operations of kind R.
    """
    made = "R" if recomputed else "F"
    before = {"R": "F", "B": made, "I": made, "W": "I"}.get(operation.kind)
    return None if before is None else Operation(operation.stage, before, operation.microbatch)


def with_updates(lowered: Lowered, updated: Container[int]) -> Lowered:
    """The same where every backward of the orders `updated` (by number) is followed by an update of its stage's
    weights, behind what is exchanged then."""
    orders = enumerate(lowered.orders)
    return replace(
        lowered, orders=tuple(tuple(_updated(order)) if number in updated else order for number, order in orders)
    )


def _updated(order: Sequence[Step]) -> Iterator[Step]:
    due: list[Operation] = []
    for step in order:
        if isinstance(step, Operation):
            yield from due
            due = [Operation(step.stage, "O", step.microbatch)] if step.kind == "B" else []
        yield step
    yield from due


def split_order(
    order: Sequence[Operation],
) -> tuple[tuple[tuple[Operation, ...], tuple[Operation, ...]], list[tuple[Operation, Operation]]]:
    """The order of a device with a forward and a backward engine as one order for each, and the gates between them.

    Each engine goes by itself, but a forward awaits all backwards that come before it in the device's order except for
    the last, beside which it may run: so the order says how many micro-batches are in flight.
    """
    gates: list[tuple[Operation, Operation]] = []
    backwards: list[Operation] = []
    for operation in order:
        if operation.kind == "F":
            own = Operation(operation.stage, "B", operation.microbatch)
            gates += [(before, operation) for before in backwards[-2:-1]]
            gates += [(before, operation) for before in backwards[-1:] if own in backwards]
        else:
            backwards.append(operation)
            gates.append((Operation(operation.stage, "F", operation.microbatch), operation))
    return (tuple(operation for operation in order if operation.kind == "F"), tuple(backwards)), gates


def _messages(
    place: dict[Operation, int], routes: Sequence[Route], manner: Callable[[int, int, float], Manner]
) -> Iterator[Message]:
    fed: dict[int, list[Route]] = defaultdict(list)
    feeding: dict[int, list[Route]] = defaultdict(list)
    for route in sorted(routes):
        fed[route.source].append(route)
        feeding[route.target].append(route)
    for operation, source in place.items():
        if operation.kind == "F":
            readers = [(Operation(route.target, "F", operation.microbatch), route) for route in fed[operation.stage]]
        elif operation.kind in BACKWARDS:
            readers = [
                (_backward(route.source, operation.microbatch, place), route) for route in feeding[operation.stage]
            ]
        else:
            readers = []
        for reader, route in readers:
            target = place[reader]
            how: Manner = "free" if source == target else manner(source, target, route.size_bytes)
            yield Message(operation, reader, source, target, route.size_bytes, how)


def _backward(stage: int, microbatch: int, place: dict[Operation, int]) -> Operation:
    whole = Operation(stage, "B", microbatch)
    return whole if whole in place else Operation(stage, "I", microbatch)


Gap = tuple[int, int]
"""The number of an order, and of the operation that comes next in it."""


def _with_exchanges(orders: Sequence[Sequence[Operation]], messages: Sequence[Message]) -> Iterator[tuple[Step, ...]]:
    """The orders with a step for each time that two devices stop for each other."""
    place = {operation: (d, k) for d, order in enumerate(orders) for k, operation in enumerate(order)}
    sent: dict[Gap, list[int]] = defaultdict(list)
    received: dict[Gap, list[int]] = defaultdict(list)
    between: dict[tuple[Gap, Gap], list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        if message.manner in ("fused", "ordered"):
            (source, after), target = place[message.made_by], place[message.read_by]
            sent[source, after + 1].append(number)
            received[target].append(number)
            between[(source, after + 1), target].append(number)
    steps = _steps_of(messages, between)
    for d, order in enumerate(orders):
        lowered: list[Step] = []
        for k in range(len(order) + 1):
            waiting = [
                *sorted(sent[d, k], key=lambda number: messages[number].read_by),
                *sorted(received[d, k], key=lambda number: messages[number].made_by),
            ]
            lowered += dict.fromkeys(step for number in waiting for step in steps[number])
            lowered += order[k : k + 1]
        yield tuple(lowered)


def _steps_of(
    messages: Sequence[Message], between: dict[tuple[Gap, Gap], list[int]]
) -> dict[int, tuple[Exchange, ...]]:
    """The exchange that carries each message; all of both directions where they are ordered."""
    steps: dict[int, tuple[Exchange, ...]] = {}
    for (source, target), numbers in between.items():
        back = between.get((target, source), [])
        everyone = sorted([*numbers, *back], key=lambda number: (messages[number].made_by.kind != "F", number))
        fused = messages[numbers[0]].manner == "fused"
        for number in numbers:
            if not back:
                steps[number] = (Exchange((number,)),)
            elif fused:
                steps[number] = (Exchange(tuple(everyone)),)
            else:
                steps[number] = tuple(Exchange((each,)) for each in everyone)
    return steps
