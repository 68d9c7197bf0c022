"""The orders of a plan, read from strings such as `2F0` into operations, with every fault of theirs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bapipe.errors import Fault
from bapipe.lowering import Operation
from bapipe.plan import Plan, Schedule

OPERATION = re.compile(r"(0|[1-9]\d{0,8})([FBIWR])(0|[1-9]\d{0,8})")
NAMED = 5
"""How many missing operations a fault names; it counts the others."""


@dataclass(frozen=True)
class Seat:
    """A stage on one of its devices: the number of the device's order, which replica it is, and of how many."""

    order_number: int
    stage: int
    replica: int
    replicas: int


@dataclass(frozen=True)
class Duty:
    """What a device has to execute. Never listed before it is known to be as long as what was given.

    `kinds` are those of the operations of each stage, in the order in which a micro-batch needs them.
    """

    order_number: int
    seats: dict[int, Seat]
    kinds: dict[int, tuple[str, ...]]
    num_microbatches: int
    training: bool

    @property
    def size(self) -> int:
        """The number of operations."""
        return sum(len(self.microbatches(seat)) * len(self.kinds[seat.stage]) for seat in self.seats.values())

    def microbatches(self, seat: Seat) -> range:
        """The micro-batches of a seat: k on replica k mod r."""
        return range(seat.replica, self.num_microbatches, seat.replicas)

    def names(self) -> Iterator[str]:
        """The operations, stage by stage and micro-batch by micro-batch."""
        for stage, seat in self.seats.items():
            for k in self.microbatches(seat):
                for kind in self.kinds[stage]:
                    yield f"{stage}{kind}{k}"


def seats_of(plan: Plan) -> list[Seat]:
    """The stages on their devices, stage by stage. The plan's devices must exist."""
    numbers = {device.id: number for number, device in enumerate(plan.request.cluster.devices)}
    return [
        Seat(numbers[device], s, r, len(stage.devices))
        for s, stage in enumerate(plan.stages)
        for r, device in enumerate(stage.devices)
    ]


def order_numbers(plan: Plan) -> list[int]:
    """The numbers of the orders of the devices in use, in the order of their first stages."""
    return list(dict.fromkeys(seat.order_number for seat in seats_of(plan)))


def read_codes(plan: Plan, schedule: Schedule) -> list[tuple[int, ...]] | None:
    """The order of each device in use as integers: `2k` is the forward, `2k + 1` the backward of micro-batch k.

    None where a device has several stages, an order holds other operations than those, or any order has a fault.
    """
    seats = seats_of(plan)
    if len(seats) > len(order_numbers(plan)) or _stray_faults(seats, schedule):
        return None
    training = plan.request.task == "training"
    codes = [_codes(schedule.orders[seat.order_number], seat, schedule.num_microbatches, training) for seat in seats]
    return [order for order in codes if order is not None] if None not in codes else None


def read_orders(plan: Plan, schedule: Schedule) -> tuple[list[tuple[Operation, ...]], list[Fault]]:
    """The order of each device in use as operations, in the order of their first stages, and all faults.

    An order holds every operation of its device exactly once; whether it can be executed is for the replay to say. The
    backward of a stage is B for all micro-batches or I and W for all; a stage that recomputes layers has an R for each
    of them or, as part of the backward, for none.
    """
    seats = seats_of(plan)
    kinds = _kinds(plan, schedule)
    orders: list[tuple[Operation, ...]] = []
    faults: list[Fault] = []
    for number in order_numbers(plan):
        mine = {seat.stage: seat for seat in seats if seat.order_number == number}
        duty = Duty(number, mine, kinds, schedule.num_microbatches, plan.request.task == "training")
        found = list(_order_faults(schedule.orders[number], duty))
        faults += found
        orders.append(() if found else tuple(map(operation, schedule.orders[number])))
    return orders, [*faults, *_stray_faults(seats, schedule)]


def operation(name: str) -> Operation:
    """The operation that a well-formed name means."""
    match = OPERATION.fullmatch(name)
    if match is None:
        raise ValueError(name)
    return Operation(int(match[1]), match[2], int(match[3]))


def _kinds(plan: Plan, schedule: Schedule) -> dict[int, tuple[str, ...]]:
    """Of each stage, the kinds of its operations: the first backward that is met says whether it is split.

    A device with a backward engine of its own does not split it.
    """
    if plan.request.task != "training":
        return dict.fromkeys(range(len(plan.stages)), ("F",))
    met: dict[int, dict[str, None]] = defaultdict(dict)
    for order in schedule.orders:
        for match in map(OPERATION.fullmatch, order):
            if match is not None:
                met[int(match[1])][match[2]] = None
    kinds: dict[int, tuple[str, ...]] = {}
    for s, stage in enumerate(plan.stages):
        first = next((kind for kind in met[s] if kind in "BIW"), "B") if stage.forward_share is None else "B"
        apart = ("R",) if "R" in met[s] and stage.recomputed_layers else ()
        kinds[s] = ("F", *apart, *(("B",) if first == "B" else ("I", "W")))
    return kinds


def _stray_faults(seats: list[Seat], schedule: Schedule) -> list[Fault]:
    used = {seat.order_number for seat in seats}
    return [
        Fault(
            "misplaced_operation",
            f"{order[0]} is on a device that has no stage; leave its order empty",
            f"/schedule/orders/{number}/0",
        )
        for number, order in enumerate(schedule.orders)
        if order and number not in used
    ]


def _codes(order: tuple[str, ...], seat: Seat, num_microbatches: int, training: bool) -> tuple[int, ...] | None:
    """The order as integers; None when it is not made of just the forwards and backwards of its seat, each once."""
    mine = range(seat.replica, num_microbatches, seat.replicas)
    if len(order) != len(mine) * (2 if training else 1):
        return None
    known = {f"{seat.stage}F{k}": 2 * k for k in mine}
    if training:
        known.update({f"{seat.stage}B{k}": 2 * k + 1 for k in mine})
    codes = tuple([known.get(name, -1) for name in order])
    return codes if -1 not in codes and len(set(codes)) == len(codes) else None


def _order_faults(order: tuple[str, ...], duty: Duty) -> Iterator[Fault]:
    pointer = f"/schedule/orders/{duty.order_number}"
    first: dict[str, int] = {}
    for place, name in enumerate(order):
        foreign = _foreign(name, duty)
        if foreign is not None:
            yield Fault(*foreign, f"{pointer}/{place}")
        elif name in first:
            detail = f"{name} was already executed as operation {first[name] + 1}; every operation comes once"
            yield Fault("duplicate_operation", detail, f"{pointer}/{place}")
        else:
            first[name] = place
    missing = duty.size - len(first)
    if missing:
        named = ", ".join(islice((name for name in duty.names() if name not in first), NAMED))
        more = f" and {missing - NAMED} more" if missing > NAMED else ""
        never = "is never executed; add it" if missing == 1 else "are never executed; add them"
        yield Fault("missing_operation", f"{named}{more} {never}", pointer)


def _foreign(name: str, duty: Duty) -> tuple[str, str] | None:
    """The code and the sentence for an operation that is none of the device's; None for one that is."""
    match = OPERATION.fullmatch(name)
    if match is None:
        return "unknown_operation", f"{name[:60]!r} is none; write stage, kind (F, B, I, W, R) and micro-batch, as 2F0"
    if match[2] != "F" and not duty.training:
        return "unknown_operation", f"{name}: inference has no backward; leave it out"
    return _misplaced(name, int(match[1]), int(match[3]), duty) or _of_another_kind(name, int(match[1]), match[2], duty)


def _misplaced(name: str, stage: int, microbatch: int, duty: Duty) -> tuple[str, str] | None:
    if microbatch >= duty.num_microbatches:
        return "unknown_operation", f"{name}: the micro-batches are 0 to {duty.num_microbatches - 1}"
    if stage not in duty.seats:
        mine = " and ".join(map(str, duty.seats))
        return "misplaced_operation", f"{name} belongs to stage {stage}, and this device has stage {mine}"
    seat = duty.seats[stage]
    owner = microbatch % seat.replicas
    if owner != seat.replica:
        return "misplaced_operation", f"{name} belongs to replica {owner}, and this device is replica {seat.replica}"
    return None


def _of_another_kind(name: str, stage: int, kind: str, duty: Duty) -> tuple[str, str] | None:
    if kind in duty.kinds[stage]:
        return None
    if kind == "R":
        return "unknown_operation", f"{name}: stage {stage} recomputes no layers; name them, or leave it out"
    other = "whole elsewhere in this plan" if kind in "IW" else "split elsewhere in this plan"
    return "mixed_backward", f"{name}: the backward of stage {stage} is {other}; use B for all, or I and W for all"
