"""Operations and transfers that take the time that the plan's cost model gives them.

An operation sleeps for what is left of its time when its (tiny) work is done. A transfer over a link beside compute is
on its way once its operation has ended and the link is free, and only the operation that reads it waits: nobody is held
up meanwhile. Over a blocking link both ranks stop, when both have come that far. The rules are those of
`bapipe.lowering`, executed by clocks instead of replayed.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bapipe.errors import Fault
from bapipe.lowering import Exchange, Operation
from bapipe.orders import OPERATION, order_numbers
from bapipe.plan import Plan
from bapipe.simulator.event_simulation import prepare
from bapipe_executor.observer import Observer
from bapipe_executor.rehearsal.board import Board

POLL_S = 2e-4
"""How often a rank looks whether the other has come to an exchange."""


def rehearsal_faults(plan: Plan) -> list[Fault]:
    """Why a plan cannot be rehearsed."""
    faults = []
    for stage in plan.stages:
        if len(stage.devices) > 1:
            detail = "replicas reduce their gradients, which is not emulated; rehearse a plan without them"
            faults.append(Fault("unsupported", detail, f"/stages/{stage.index}/devices"))
    if plan.request.profile.tied_parameters and len(plan.stages) > 1:
        detail = "the gradients of tied parameters are reduced, which is not emulated"
        faults.append(Fault("unsupported", detail, "/request/profile/tied_parameters"))
    if not faults and plan.schedule is not None:
        messages = prepare(plan, plan.schedule).job.lowered.messages
        if any(message.manner == "streaming" for message in messages):
            detail = "a streaming link has its data read before it is complete, which torch cannot"
            faults.append(Fault("unsupported", detail, "/request/cluster/links"))
    return faults


class EmulatedCluster(Observer):
    """Delays the operations of a rank; `board` is a file that all ranks of the machine share, not there at first."""

    def __init__(self, plan: Plan, rank: int, board: Path) -> None:
        assert plan.schedule is not None
        ready = prepare(plan, plan.schedule)
        numbers = order_numbers(plan)
        self._track = numbers.index(sorted(numbers)[rank])
        self._job = ready.job
        self._optimizer_s = ready.job.optimizer_s[self._track]
        resources = dict.fromkeys(r for price in self._job.prices for r in price.resources)
        self._resource: dict[Hashable, int] = {resource: number for number, resource in enumerate(resources)}
        steps = (step for order in self._job.lowered.orders for step in order if isinstance(step, Exchange))
        self._exchange = {step: number for number, step in enumerate(dict.fromkeys(steps))}
        self._due = _exchanges_before(self._job.lowered.orders[self._track])
        self._board = Board(board, len(self._job.prices), len(resources), len(self._exchange))
        self._step = 1

    def before(self, name: str) -> None:
        for exchange in self._due.get(_operation(name), ()):
            self._meet(exchange)

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        operation = _operation(name)
        for number in self._job.lowered.reads.get(operation, ()):
            _sleep_until(float(self._board.arrival_s[number]))
        start_s = time.monotonic()
        yield
        _sleep_until(start_s + self._job.seconds[self._track][operation])
        for number in self._job.lowered.sends.get(operation, ()):
            self._send(number)

    def finished(self) -> None:
        for exchange in self._due.get(None, ()):
            self._meet(exchange)
        _sleep_until(time.monotonic() + self._optimizer_s)
        self._step += 1

    def _send(self, number: int) -> None:
        """A transfer beside compute: its arrival is known as soon as it starts."""
        price, free_s = self._job.prices[number], self._board.free_s
        resources = [self._resource[resource] for resource in price.resources]
        start_s = max([time.monotonic(), *(float(free_s[resource]) for resource in resources)])
        for resource in resources:
            free_s[resource] = start_s + price.seconds
        self._board.arrival_s[number] = start_s + price.seconds if price.seconds else 0.0

    def _meet(self, exchange: Exchange) -> None:
        """Both ranks stop until all has passed, each way of the link by itself."""
        number, messages = self._exchange[exchange], self._job.lowered.messages
        pair = sorted((messages[exchange.messages[0]].source, messages[exchange.messages[0]].target))
        side = pair.index(self._track)
        self._board.present_s[number, side] = time.monotonic()
        self._board.present_step[number, side] = self._step
        while float(self._board.present_step[number, 1 - side]) != self._step:
            time.sleep(POLL_S)
        busy_s: dict[Hashable, float] = {}
        for message in exchange.messages:
            for resource in self._job.prices[message].resources:
                busy_s[resource] = busy_s.get(resource, 0.0) + self._job.prices[message].seconds
        _sleep_until(float(self._board.present_s[number].max()) + max(busy_s.values()))


def _exchanges_before(order: Sequence[Operation | Exchange]) -> dict[Operation | None, tuple[Exchange, ...]]:
    """The exchanges between each operation and the one before it; under None those after the last."""
    due: dict[Operation | None, tuple[Exchange, ...]] = {}
    waiting: list[Exchange] = []
    for step in order:
        if isinstance(step, Exchange):
            waiting.append(step)
        else:
            due[step], waiting = tuple(waiting), []
    due[None] = tuple(waiting)
    return due


def _operation(name: str) -> Operation:
    found = OPERATION.fullmatch(name)
    assert found is not None, name
    return Operation(int(found[1]), found[2], int(found[3]))


def _sleep_until(end_s: float) -> None:
    left_s = end_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
