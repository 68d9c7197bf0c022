"""The orders of a plan, read from strings such as `2F0` into integers, with every fault of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bapipe.errors import Fault
from bapipe.plan import Plan, Schedule

OPERATION = re.compile(r"(0|[1-9]\d{0,8})([FBIWR])(0|[1-9]\d{0,8})")
NAMED = 5
"""How many missing operations a fault names; it counts the others."""


@dataclass(frozen=True)
class Seat:
    """A device of a plan: the number of its order, its stage, which replica of the stage it is, and of how many."""

    order_number: int
    stage: int
    replica: int
    replicas: int


@dataclass(frozen=True)
class Duty:
    """What the device at a seat has to execute. Never listed before it is known to be as long as what was given."""

    seat: Seat
    num_microbatches: int
    training: bool

    @property
    def microbatches(self) -> range:
        """The micro-batches of the device: k on replica k mod r."""
        return range(self.seat.replica, self.num_microbatches, self.seat.replicas)

    @property
    def size(self) -> int:
        """The number of operations."""
        return len(self.microbatches) * (2 if self.training else 1)

    def names(self) -> Iterator[str]:
        """The operations, micro-batch by micro-batch."""
        for k in self.microbatches:
            yield f"{self.seat.stage}F{k}"
            if self.training:
                yield f"{self.seat.stage}B{k}"


def seats_of(plan: Plan) -> list[Seat]:
    """The devices in use, stage by stage. The plan's devices must exist."""
    numbers = {device.id: number for number, device in enumerate(plan.request.cluster.devices)}
    return [
        Seat(numbers[device], s, r, len(stage.devices))
        for s, stage in enumerate(plan.stages)
        for r, device in enumerate(stage.devices)
    ]


def read_orders(plan: Plan, schedule: Schedule) -> tuple[list[tuple[int, ...]], list[Fault]]:
    """The order of each device in use as integers (`2k` forward, `2k + 1` backward of micro-batch k), and all faults.

    An order holds every operation of its device exactly once; whether it can be executed is for the replay to say.
    """
    training = plan.request.task == "training"
    seats = seats_of(plan)
    orders: list[tuple[int, ...]] = []
    faults: list[Fault] = []
    for seat in seats:
        order = schedule.orders[seat.order_number]
        duty = Duty(seat, schedule.num_microbatches, training)
        codes = _codes(order, duty)
        if codes is None:
            faults += _order_faults(order, duty)
        orders.append(codes or ())
    used = {seat.order_number for seat in seats}
    for number, order in enumerate(schedule.orders):
        if order and number not in used:
            detail = f"{order[0]} is on a device that has no stage; leave its order empty"
            faults.append(Fault("misplaced_operation", detail, f"/schedule/orders/{number}/0"))
    return orders, faults


def _codes(order: tuple[str, ...], duty: Duty) -> tuple[int, ...] | None:
    """The order as integers; None when it is not made of just the operations of its device, each once."""
    if len(order) != duty.size:
        return None
    stage, mine = duty.seat.stage, duty.microbatches
    known = {f"{stage}F{k}": 2 * k for k in mine}
    if duty.training:
        known.update({f"{stage}B{k}": 2 * k + 1 for k in mine})
    codes = tuple([known.get(name, -1) for name in order])
    return codes if -1 not in codes and len(set(codes)) == len(codes) else None


def _order_faults(order: tuple[str, ...], duty: Duty) -> Iterator[Fault]:
    pointer = f"/schedule/orders/{duty.seat.order_number}"
    first: dict[str, int] = {}
    for place, name in enumerate(order):
        foreign = _foreign(name, duty)
        if foreign is not None:
            yield Fault(*foreign, f"{pointer}/{place}")
        elif name in first:
            detail = f"{name} was already executed at place {first[name]}; every operation comes once"
            yield Fault("duplicate_operation", detail, f"{pointer}/{place}")
        else:
            first[name] = place
    missing = duty.size - len(first)
    if missing:
        named = ", ".join(islice((name for name in duty.names() if name not in first), NAMED))
        more = f" and {missing - NAMED} more" if missing > NAMED else ""
        yield Fault("missing_operation", f"{named}{more} never executed; add them", pointer)


def _foreign(name: str, duty: Duty) -> tuple[str, str] | None:
    """The code and the sentence for an operation that is none of the device's; None for one that is."""
    match = OPERATION.fullmatch(name)
    if match is None:
        return "unknown_operation", f"{name[:60]!r} is none; write stage, kind (F, B) and micro-batch, such as 2F0"
    kind = match[2]
    if kind in "IWR":
        return "unsupported", f"{name}: split backwards and recomputation cannot be simulated yet; use F and B"
    if kind == "B" and not duty.training:
        return "unknown_operation", f"{name}: inference has no backward; leave it out"
    return _misplaced(name, int(match[1]), int(match[3]), duty)


def _misplaced(name: str, stage: int, microbatch: int, duty: Duty) -> tuple[str, str] | None:
    seat = duty.seat
    if microbatch >= duty.num_microbatches:
        return "unknown_operation", f"{name}: the micro-batches are 0 to {duty.num_microbatches - 1}"
    if stage != seat.stage:
        return "misplaced_operation", f"{name} belongs to stage {stage}, and this device has stage {seat.stage}"
    owner = microbatch % seat.replicas
    if owner != seat.replica:
        return "misplaced_operation", f"{name} belongs to replica {owner}, and this device is replica {seat.replica}"
    return None
