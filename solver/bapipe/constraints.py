"""Does a plan respect what its request asks? Cuts, groups, pins, devices, micro-batches and schedule."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.errors import Fault
from bapipe.graph import graph_of
from bapipe.plan import Plan, Schedule
from bapipe.problem import Pin
from bapipe.schedules import FAMILIES, placed_orders, weight_versions
from bapipe.structure import stage_by_layer


def constraint_faults(plan: Plan) -> list[Fault]:
    """Every way in which the plan goes against its request, with pointers into the plan."""
    faults = [*_cut_faults(plan), *_group_faults(plan), *_pin_faults(plan), *_device_faults(plan)]
    faults += _recomputation_faults(plan)
    if plan.schedule is not None:
        faults += [*_microbatch_faults(plan, plan.schedule), *_schedule_faults(plan, plan.schedule)]
    return faults


def _cut_faults(plan: Plan) -> Iterator[Fault]:
    if plan.request.cuts == "any":
        return
    profile = plan.request.profile
    position = {profile.layers[index].id: p for p, index in enumerate(graph_of(profile).layers)}
    for s, stage in enumerate(plan.stages):
        held = sorted(position[layer] for layer in stage.layers if layer in position)
        if held and held[-1] - held[0] + 1 > len(held):
            detail = (
                f"the layers of stage {s} are not consecutive in the topological order; ask for cuts any to allow it"
            )
            yield Fault("not_contiguous", detail, f"/stages/{s}/layers")


def _group_faults(plan: Plan) -> Iterator[Fault]:
    stages = stage_by_layer(plan)
    for group in plan.request.profile.groups:
        placed = [(layer, stages[layer]) for layer in group if layer in stages]
        for layer, stage in placed[1:]:
            first_layer, first = placed[0]
            if stage != first:
                detail = f"{layer!r} is in a group with {first_layer!r} of stage {first}; keep them together"
                yield Fault("split_group", detail, _layer_pointer(plan, layer, stage))


def _pin_faults(plan: Plan) -> Iterator[Fault]:
    stages = stage_by_layer(plan)
    for pin in plan.request.profile.pins:
        stage = stages.get(pin.layer)
        if stage is not None and not _holds(plan, pin, stage):
            place = f"the {pin.stage} stage" if pin.stage else f"device {pin.device!r}"
            detail = f"{pin.layer!r} is pinned to {place}, and is in stage {stage}"
            yield Fault("broken_pin", detail, _layer_pointer(plan, pin.layer, stage))


def _holds(plan: Plan, pin: Pin, stage: int) -> bool:
    if pin.device is not None:
        return pin.device in plan.stages[stage].devices
    return stage == (0 if pin.stage == "first" else len(plan.stages) - 1)


def _layer_pointer(plan: Plan, layer: str, stage: int) -> str:
    return f"/stages/{stage}/layers/{plan.stages[stage].layers.index(layer)}"


def _device_faults(plan: Plan) -> Iterator[Fault]:
    request = plan.request
    used = {device for stage in plan.stages for device in stage.devices}
    idle = [device.id for device in request.cluster.devices if device.id not in used]
    if idle and not request.idle_devices:
        yield Fault("idle_device", f"{', '.join(idle[:5])} without a stage; the request lets no device idle", "/stages")
    if request.max_stages is not None and len(plan.stages) > request.max_stages:
        detail = f"{len(plan.stages)} stages where the request allows {request.max_stages}"
        yield Fault("too_many_stages", detail, "/stages")
    for s, stage in enumerate(plan.stages):
        if request.max_replication is not None and len(stage.devices) > request.max_replication:
            detail = f"{len(stage.devices)} replicas where the request allows {request.max_replication}"
            yield Fault("too_many_replicas", detail, f"/stages/{s}/devices")


def _recomputation_faults(plan: Plan) -> Iterator[Fault]:
    for s, stage in enumerate(plan.stages):
        if stage.recomputed_layers and plan.request.recomputation == "never":
            detail = f"stage {s} recomputes layers, which the request does not allow"
            yield Fault("not_allowed", detail, f"/stages/{s}/recomputed_layers")


def _microbatch_faults(plan: Plan, schedule: Schedule) -> Iterator[Fault]:
    request = plan.request
    for field, value, allowed in (
        ("microbatch_size", schedule.microbatch_size, request.microbatch_sizes),
        ("num_microbatches", schedule.num_microbatches, request.microbatch_counts),
    ):
        if allowed is not None and value not in allowed:
            detail = f"{field} {value} is not among those asked for: {', '.join(map(str, allowed))}"
            yield Fault("not_allowed", detail, f"/schedule/{field}")


def _schedule_faults(plan: Plan, schedule: Schedule) -> Iterator[Fault]:
    allowed = plan.request.schedules
    if allowed is not None and schedule.name not in allowed:
        detail = f"schedule {schedule.name!r} is not among those asked for: {', '.join(allowed)}"
        yield Fault("not_allowed", detail, "/schedule/name")


def named_order_faults(plan: Plan, schedule: Schedule) -> Iterator[Fault]:
    """Orders that are not those of the schedule that the plan names, where the plan can be executed."""
    if schedule.name == "custom":
        return
    if FAMILIES[schedule.name].replicated and len(plan.stages) > 1:
        detail = f"data parallelism has one stage, not {len(plan.stages)}"
        yield Fault("wrong_schedule", detail, "/schedule/name")
        return
    placed = [stage.devices for stage in plan.stages]
    used = [device for devices in placed for device in devices]
    if len(used) > len(set(used)) or (len(placed) > 1 and len(used) > len(placed)):
        detail = f"{schedule.name} is one stage a device; with several of either, name the schedule custom"
        yield Fault("wrong_schedule", detail, "/schedule/name")
        return
    versions = weight_versions(schedule.name, len(placed))
    if versions != schedule.weight_versions:
        detail = f"{schedule.name} has {'no' if versions is None else list(versions)} weight_versions"
        yield Fault("wrong_schedule", detail, "/schedule/weight_versions")
        return
    split = FAMILIES[schedule.name].engines > 1
    for s, stage in enumerate(plan.stages):
        if (stage.forward_share is not None) != split:
            detail = f"{schedule.name} splits {'every device' if split else 'no device'}; " + (
                "give the share of its forward engine" if split else "leave the share out, or name the schedule custom"
            )
            yield Fault("wrong_schedule", detail, f"/stages/{s}/forward_share")
    everyone = [device.id for device in plan.request.cluster.devices]
    training = plan.request.task == "training"
    expected = placed_orders(schedule.name, placed, everyone, schedule.num_microbatches, training=training)
    for number, (order, named) in enumerate(zip(schedule.orders, expected, strict=True)):
        if order != named:
            detail = f"this is not the order of {schedule.name}; name the schedule custom, or use that order"
            yield Fault("wrong_schedule", detail, f"/schedule/orders/{number}")
