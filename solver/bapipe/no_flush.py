"""Plans without a flush: what they may hold, and mini-batches that follow each other as one of more micro-batches.

A stage that keeps v versions of its weights executes v - 1 forwards, then forward and backward in turn for ever; it
updates its weights after each backward. A lone mini-batch runs dry in the end, which leaves the rest of the backwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bapipe.errors import Fault
from bapipe.lowering import Operation
from bapipe.plan import Plan, Schedule
from bapipe.problem import MAX_DEVICES
from bapipe.schedules.base import in_turn

MAX_VERSIONS = MAX_DEVICES
"""As many as stages; a replay in search of the period follows several times as many micro-batches."""


def resident_microbatches(versions: int, num_microbatches: int) -> int:
    """Micro-batches of so many whole mini-batches that all in flight, and the next one, are among them."""
    return num_microbatches * -(-(versions + 1) // num_microbatches)


def steps_drawn(plan: Plan) -> int:
    """How many steps a picture of `plan` shows: one or, without a flush, so many in a row that the pipeline is full."""
    schedule = plan.schedule
    if schedule is None or schedule.weight_versions is None:
        return 1
    return max(2, -(-2 * max(schedule.weight_versions) // schedule.num_microbatches))


def in_a_row(plan: Plan, steps: int) -> Plan:
    """The plan of a single step that is `steps` steps of a sound plan without a flush."""
    schedule = plan.schedule
    if schedule is None or schedule.weight_versions is None:
        raise ValueError("a plan without a flush is wanted")
    count = steps * schedule.num_microbatches
    orders: list[tuple[str, ...]] = [()] * len(schedule.orders)
    numbers = {device.id: number for number, device in enumerate(plan.request.cluster.devices)}
    for stage, versions in zip(plan.stages, schedule.weight_versions, strict=True):
        orders[numbers[stage.devices[0]]] = stage_order(stage.index, versions, count)
    longer = schedule.model_copy(update={"num_microbatches": count, "orders": tuple(orders)})
    request = plan.request.model_copy(update={"batch_size": steps * plan.request.batch_size})
    return plan.model_copy(update={"request": request, "schedule": longer})


def stage_order(stage: int, versions: int, num_microbatches: int) -> tuple[str, ...]:
    """`stage_operations` as a plan writes them."""
    return tuple(map(str, stage_operations(stage, versions, num_microbatches)))


def stage_operations(stage: int, versions: int, num_microbatches: int) -> tuple[Operation, ...]:
    """What a stage without a flush executes, from an empty pipeline to an empty one."""
    forwards = [Operation(stage, "F", k) for k in range(num_microbatches)]
    return in_turn(forwards, [Operation(stage, "B", k) for k in range(num_microbatches)], versions - 1)


def no_flush_faults(plan: Plan) -> Iterator[Fault]:
    """What a plan without a flush cannot hold, with pointers into the plan; none for a plan with one."""
    schedule = plan.schedule
    if schedule is None or schedule.weight_versions is None:
        return
    yield from _version_faults(plan, schedule.weight_versions)
    yield from _tied_faults(plan)
    if plan.request.task == "inference":
        detail = "inference updates no weights; leave weight_versions out"
        yield Fault("wrong_versions", detail, "/schedule/weight_versions")
    seats = Counter(device for stage in plan.stages for device in stage.devices)
    for s, stage in enumerate(plan.stages):
        faults = {
            f"/stages/{s}/devices": {
                "without a flush a stage has one device, since replicas would reduce every update": len(stage.devices)
                > 1,
                "without a flush a device has one stage": any(seats[device] > 1 for device in stage.devices),
            },
            f"/stages/{s}/forward_share": {
                "without a flush no device is split into two engines": stage.forward_share is not None
            },
        }
        for pointer, details in faults.items():
            yield from (Fault("not_without_flush", detail, pointer) for detail, wrong in details.items() if wrong)


def no_flush_order_faults(plan: Plan, schedule: Schedule) -> Iterator[Fault]:
    """Orders that are not those of their stages' weight versions, in a plan whose structure is sound."""
    if schedule.weight_versions is None:
        return
    numbers = {device.id: number for number, device in enumerate(plan.request.cluster.devices)}
    for stage, versions in zip(plan.stages, schedule.weight_versions, strict=True):
        number = numbers[stage.devices[0]]
        order = schedule.orders[number]
        if len(order) != 2 * schedule.num_microbatches:
            detail = f"{len(order)} operations; without a flush there are a forward and a backward for each micro-batch"
            yield Fault("not_without_flush", detail, f"/schedule/orders/{number}")
            continue
        wanted = stage_order(stage.index, versions, schedule.num_microbatches)
        place = next((k for k, (found, due) in enumerate(zip(order, wanted, strict=True)) if found != due), None)
        if place is not None:
            detail = (
                f"{order[place][:60]} where {wanted[place]} is due: without a flush, a stage with {versions} weight "
                f"versions executes {versions - 1} forwards, then forward and backward in turn"
            )
            yield Fault("not_without_flush", detail, f"/schedule/orders/{number}/{place}")


def _version_faults(plan: Plan, versions: tuple[int, ...]) -> Iterator[Fault]:
    if len(versions) != len(plan.stages):
        detail = f"{len(versions)} numbers for {len(plan.stages)} stages; give one each"
        yield Fault("wrong_length", detail, "/schedule/weight_versions")
    for s, kept in enumerate(versions):
        if kept > MAX_VERSIONS:
            detail = f"{kept} versions; at most {MAX_VERSIONS} can be replayed"
            yield Fault("too_large", detail, f"/schedule/weight_versions/{s}")
    for s in range(1, len(versions)):
        if versions[s] > versions[s - 1]:
            detail = (
                f"stage {s} keeps {versions[s]} versions, stage {s - 1} before it only {versions[s - 1]}: it waits "
                "for ever for forwards; give no stage more than the one before it"
            )
            yield Fault("wrong_versions", detail, f"/schedule/weight_versions/{s}")


def _tied_faults(plan: Plan) -> Iterator[Fault]:
    stage_of = {layer: s for s, stage in enumerate(plan.stages) for layer in stage.layers}
    for k, tied in enumerate(plan.request.profile.tied_parameters):
        if len({stage_of[layer] for layer in tied.layers if layer in stage_of}) > 1:
            detail = "tied parameters on several stages would be reduced at every update; put their layers on one stage"
            yield Fault("not_without_flush", detail, f"/request/profile/tied_parameters/{k}")
