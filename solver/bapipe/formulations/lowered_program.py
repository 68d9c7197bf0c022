"""The last stages of a pipeline as a program: operations and exchanges, each after all that it waits for.

The orders are the schedule's and their transfers those of `bapipe.lowering`; which of two transfers comes first over a
link, and who stops for whom, does not depend on what anything takes, as long as it takes something at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from bapipe.formulations.exchanges import order_of
from bapipe.lowering import Exchange, Lowered, Manner, Message, Operation, Route, Step, lower, split_order
from bapipe.problem import ScheduleName
from bapipe.schedules import FAMILIES

UPSTREAM = -1
"""The track of whatever is in front of the last stages."""


class Send(NamedTuple):
    """A transfer to a stage of the program, over the boundary in front of stage `boundary`."""

    number: int
    boundary: int
    reader: int
    streaming: bool


class Run(NamedTuple):
    """An operation on a track: stages count from the first of the program. `awaits`: the numbers of the transfers that
    it reads; `fed`: whether it reads what comes from in front of the program.
    """

    track: int
    stage: int
    backward: bool
    microbatch: int
    awaits: tuple[int, ...]
    fed: bool
    sends: tuple[Send, ...]
    freely: tuple[int, ...]


class Meet(NamedTuple):
    """Two tracks stop for one transfer over a boundary; of the first, with whatever is in front of the program, one.

    `microbatch`: which activations come from there; None: none.
    """

    tracks: tuple[int, ...]
    boundary: int
    microbatch: int | None


@dataclass(frozen=True)
class Program:
    """Instructions in an order in which they can be followed, and the tracks of each stage."""

    instructions: tuple[Run | Meet, ...]
    tracks: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)
def program(
    name: ScheduleName,
    num_stages: int,
    num_microbatches: int,
    manners: tuple[Manner, ...],
    *,
    training: bool,
) -> Program:
    """The program of the last `len(manners)` stages; `manners[s]` is that of the boundary in front of the s-th."""
    count = len(manners)
    first = num_stages - count
    stages = range(max(0, first - 1), num_stages)
    tracks: list[Sequence[Operation]] = []
    owners: list[int] = []
    gates: list[tuple[Operation, Operation]] = []
    for stage in stages:
        order: Sequence[Operation] = order_of(name, stage, num_stages, num_microbatches, training=training)
        engines: Sequence[Sequence[Operation]] = (order,)
        if FAMILIES[name].engines > 1:
            engines, own = split_order(order)
            gates += own
        tracks += engines
        owners += [stage - first] * len(engines)

    def manner(source: int, target: int, size_bytes: float) -> Manner:
        return "free" if owners[source] == owners[target] else manners[max(owners[source], owners[target])]

    routes = [Route(stage, stage + 1, 1.0) for stage in stages[:-1]]
    writer = _Writer(lower(tracks, routes, manner, gates), owners, first)
    return Program(
        tuple(writer.instructions()),
        tuple(tuple(t for t, owner in enumerate(owners) if owner == stage) for stage in range(count)),
    )


class _Writer:
    """Follows lowered orders step by step, and writes down what it does."""

    def __init__(self, lowered: Lowered, owners: list[int], first: int) -> None:
        self.lowered, self.owners, self.first = lowered, owners, first
        self.places = [0] * len(owners)
        self.done: set[Operation] = set()

    def instructions(self) -> list[Run | Meet]:
        """All of them, of the tracks behind the front."""
        inside = [track for track, owner in enumerate(self.owners) if owner >= 0]
        written: list[Run | Meet] = []
        progress = True
        while progress:
            progress = False
            for track in inside:
                while (instruction := self.next_on(track)) is not None:
                    written.append(instruction)
                    progress = True
        if any(self.places[track] < len(self.lowered.orders[track]) for track in inside):
            raise AssertionError("the order of a schedule waits for itself")
        return written

    def next_on(self, track: int) -> Run | Meet | None:
        """What a track does next; None while it has to wait, or has come to its end."""
        step = self.step(track)
        if isinstance(step, Exchange):
            return self.meet(step)
        if step is None or not all(self.here(self.message(n)) for n in self.lowered.reads.get(step, ())):
            return None
        self.places[track] += 1
        self.done.add(step)
        return self.run(track, step)

    def step(self, track: int) -> Step | None:
        """Where a track stands."""
        order, place = self.lowered.orders[track], self.places[track]
        return order[place] if place < len(order) else None

    def message(self, number: int) -> Message:
        """The message of that number."""
        return self.lowered.messages[number]

    def here(self, message: Message) -> bool:
        """Whether what an operation reads was made, if it is made inside; an exchange comes before who reads it."""
        return self.owners[message.source] < 0 or message.made_by in self.done

    def meet(self, step: Exchange) -> Meet | None:
        """An exchange, once every track inside that takes part has come to it."""
        message = self.message(step.messages[0])
        ends = [message.source, message.target]
        inside = tuple(track for track in ends if self.owners[track] >= 0)
        if not all(self.step(track) == step for track in inside):
            return None
        for track in inside:
            self.places[track] += 1
        coming = [m.made_by.microbatch for n in step.messages if self.owners[(m := self.message(n)).source] < 0]
        boundary = max(self.owners[track] for track in ends)
        return Meet(inside, boundary, coming[0] if coming else None)

    def run(self, track: int, operation: Operation) -> Run:
        """An operation with what it reads and sends beside compute."""
        read = [(n, self.message(n)) for n in self.lowered.reads.get(operation, ())]
        beside = [(n, m) for n, m in read if m.manner not in ("fused", "ordered")]
        sent = [(n, self.message(n)) for n in self.lowered.sends.get(operation, ())]
        inside = [(n, m) for n, m in sent if self.owners[m.target] >= 0]
        return Run(
            track,
            self.owners[track],
            operation.kind != "F",
            operation.microbatch,
            tuple(n for n, m in beside if self.owners[m.source] >= 0),
            any(self.owners[m.source] < 0 for _, m in beside),
            tuple(self.send(n, m) for n, m in inside if m.manner in ("overlapped", "streaming")),
            tuple(n for n, m in inside if m.manner == "free"),
        )

    def send(self, number: int, message: Message) -> Send:
        """A transfer beside compute."""
        ends = self.owners[message.source], self.owners[message.target]
        return Send(number, max(ends), ends[1], message.manner == "streaming")
