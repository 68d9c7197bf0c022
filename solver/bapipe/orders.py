"""The orders of a plan, read from strings such as `2F0` into integers, with every fault of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
        known = _operations(seat, schedule.num_microbatches, training)
        order = schedule.orders[seat.order_number]
        codes = tuple([known.get(name, -1) for name in order])
        orders.append(codes)
        if len(codes) != len(known) or len(set(codes)) != len(known) or -1 in codes:
            faults += _order_faults(order, known, seat, schedule.num_microbatches)
    used = {seat.order_number for seat in seats}
    for number, order in enumerate(schedule.orders):
        if order and number not in used:
            detail = f"{order[0]} is on a device that has no stage; leave its order empty"
            faults.append(Fault("misplaced_operation", detail, f"/schedule/orders/{number}/0"))
    return orders, faults


def _operations(seat: Seat, num_microbatches: int, training: bool) -> dict[str, int]:
    mine = range(seat.replica, num_microbatches, seat.replicas)
    known = {f"{seat.stage}F{k}": 2 * k for k in mine}
    if training:
        known.update({f"{seat.stage}B{k}": 2 * k + 1 for k in mine})
    return known


def _order_faults(order: tuple[str, ...], known: dict[str, int], seat: Seat, num_microbatches: int) -> Iterator[Fault]:
    pointer = f"/schedule/orders/{seat.order_number}"
    first: dict[str, int] = {}
    for place, name in enumerate(order):
        if name not in known:
            yield _foreign(name, seat, num_microbatches, f"{pointer}/{place}")
        elif name in first:
            detail = f"{name} was already executed at place {first[name]}; every operation comes once"
            yield Fault("duplicate_operation", detail, f"{pointer}/{place}")
        first.setdefault(name, place)
    missing = [name for name in known if name not in first]
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        yield Fault("missing_operation", f"{', '.join(missing[:NAMED])}{more} never executed; add them", pointer)


def _foreign(name: str, seat: Seat, num_microbatches: int, pointer: str) -> Fault:
    """Why an operation is none of this device's."""
    match = OPERATION.fullmatch(name)
    if match is None:
        detail = f"{name[:60]!r} is no operation; write stage, kind (F, B) and micro-batch, such as 2F0"
        return Fault("unknown_operation", detail, pointer)
    stage, kind, microbatch = int(match[1]), match[2], int(match[3])
    if kind in "IWR":
        detail = f"{name}: split backwards and recomputation cannot be simulated yet; use F and B"
        return Fault("unsupported", detail, pointer)
    if microbatch >= num_microbatches:
        detail = f"{name}: the micro-batches are 0 to {num_microbatches - 1}"
        return Fault("unknown_operation", detail, pointer)
    if stage != seat.stage:
        detail = f"{name} belongs to stage {stage}, and this device has stage {seat.stage}"
        return Fault("misplaced_operation", detail, pointer)
    if microbatch % seat.replicas != seat.replica:
        detail = f"{name} belongs to replica {microbatch % seat.replicas}, and this device is replica {seat.replica}"
        return Fault("misplaced_operation", detail, pointer)
    return Fault("unknown_operation", f"{name}: inference has no backward; leave it out", pointer)
