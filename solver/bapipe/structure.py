"""Does a plan hold together? Layers once, edges forwards, devices that exist, an order each, the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bapipe.cost.fpga.demand import demand_faults
from bapipe.cost.fpga.table import costs_by_shape
from bapipe.errors import Fault
from bapipe.faults import unknown_reference
from bapipe.no_flush import no_flush_faults
from bapipe.plan import Plan, Schedule
from bapipe.problem import ModelProfile


def structure_faults(plan: Plan) -> list[Fault]:
    """Every fault without which the plan can be costed and replayed, with pointers into the plan."""
    parts = (_layer_faults, _edge_faults, _device_faults, _recomputation_faults, _share_faults, _schedule_faults)
    return [fault for part in (*parts, no_flush_faults, _cost_faults) for fault in part(plan)]


def stage_by_layer(plan: Plan) -> dict[str, int]:
    """The stage that has each layer; the first where several claim it."""
    stages: dict[str, int] = {}
    for s, stage in enumerate(plan.stages):
        for layer in stage.layers:
            stages.setdefault(layer, s)
    return stages


def _layer_faults(plan: Plan) -> Iterator[Fault]:
    known = {layer.id for layer in plan.request.profile.layers}
    first: dict[str, int] = {}
    for s, stage in enumerate(plan.stages):
        if stage.index != s:
            yield Fault("wrong_index", f"stage {stage.index} is item {s}; number stages from 0", f"/stages/{s}/index")
        for k, layer in enumerate(stage.layers):
            pointer = f"/stages/{s}/layers/{k}"
            yield from unknown_reference(layer, known, pointer, "layer")
            if layer in first:
                yield Fault("duplicate_layer", f"layer {layer!r} is already in stage {first[layer]}", pointer)
            first.setdefault(layer, s)
    for wanted in plan.request.profile.layers:
        if wanted.id not in first:
            yield Fault("missing_layer", f"no stage has layer {wanted.id!r}; every layer is in one", "/stages")


def _edge_faults(plan: Plan) -> Iterator[Fault]:
    stages = stage_by_layer(plan)
    for source, target in _edges(plan.request.profile):
        if source in stages and target in stages and stages[source] > stages[target]:
            stage = stages[target]
            pointer = f"/stages/{stage}/layers/{plan.stages[stage].layers.index(target)}"
            detail = f"{target!r} in stage {stage} reads {source!r} of the later stage {stages[source]}"
            yield Fault("backward_edge", f"{detail}; data only moves to later stages", pointer)


def _edges(profile: ModelProfile) -> Iterator[tuple[str, str]]:
    if profile.edges is not None:
        return ((edge.source, edge.target) for edge in profile.edges)
    return pairwise(layer.id for layer in profile.layers)


def _device_faults(plan: Plan) -> Iterator[Fault]:
    known = {device.id for device in plan.request.cluster.devices}
    first: dict[str, int] = {}
    for s, stage in enumerate(plan.stages):
        for k, device in enumerate(stage.devices):
            pointer = f"/stages/{s}/devices/{k}"
            yield from unknown_reference(device, known, pointer, "device")
            if first.get(device) == s:
                yield Fault("duplicate_device", f"stage {s} names device {device!r} twice", pointer)
            first[device] = s


def _share_faults(plan: Plan) -> Iterator[Fault]:
    """A device that runs a forward and a backward engine side by side has nothing else to do."""
    cluster = plan.request.cluster
    kinds = {kind.name: kind.execution for kind in cluster.kinds}
    execution = {device.id: kinds[device.kind] for device in cluster.devices}
    seats = [device for stage in plan.stages for device in stage.devices]
    links = [cluster.links.within_host, cluster.links.between_hosts, cluster.links.between_racks]
    links += [pair.link for pair in cluster.links.pairs]
    for s, stage in enumerate(plan.stages):
        if stage.forward_share is None:
            continue
        faults = {
            "both engines need a part of the device; give a share between 0 and 1": not 0 < stage.forward_share < 1,
            "inference has no backward engine; leave the share out": plan.request.task == "inference",
            "only an asynchronous device can be split": any(execution.get(d) == "sync" for d in stage.devices),
            "a split device has one stage": any(seats.count(device) > 1 for device in stage.devices),
            "a split device recomputes nothing": bool(stage.recomputed_layers),
            "a split device has no blocking links": any(link and link.mode == "blocking" for link in links),
        }
        for detail, wrong in faults.items():
            if wrong:
                yield Fault("wrong_share", detail, f"/stages/{s}/forward_share")


def _recomputation_faults(plan: Plan) -> Iterator[Fault]:
    for s, stage in enumerate(plan.stages):
        for k, layer in enumerate(stage.recomputed_layers):
            pointer = f"/stages/{s}/recomputed_layers/{k}"
            if layer not in stage.layers:
                detail = f"layer {layer!r} is not in stage {s}, which can only recompute its own"
                yield Fault("dangling_reference", detail, pointer)
            elif layer in stage.recomputed_layers[:k]:
                yield Fault("duplicate_layer", f"layer {layer!r} is named twice", pointer)
        if stage.recomputed_layers and plan.request.task == "inference":
            detail = "inference has no backward to recompute for; leave the list empty"
            yield Fault("nothing_to_recompute", detail, f"/stages/{s}/recomputed_layers")


def _schedule_faults(plan: Plan) -> Iterator[Fault]:
    schedule = plan.schedule
    if schedule is None or not plan.stages:
        yield Fault("nothing_to_execute", f"the plan is {plan.status}: it has no stages and schedule", "/stages")
        return
    yield from _batch_faults(plan, schedule)
    devices = len(plan.request.cluster.devices)
    if len(schedule.orders) != devices:
        detail = f"{len(schedule.orders)} orders for {devices} devices; give one each, empty for a device without work"
        yield Fault("wrong_length", detail, "/schedule/orders")


def _batch_faults(plan: Plan, schedule: Schedule) -> Iterator[Fault]:
    samples = schedule.num_microbatches * schedule.microbatch_size
    if samples != plan.request.batch_size:
        detail = (
            f"{schedule.num_microbatches} micro-batches of {schedule.microbatch_size} samples are {samples}, "
            f"and the mini-batch has {plan.request.batch_size}"
        )
        yield Fault("batch_mismatch", detail, "/schedule/num_microbatches")


def _cost_faults(plan: Plan) -> Iterator[Fault]:
    """What an FPGA's costs cannot be worked out from, once for all kinds of them that the plan uses."""
    request, found = plan.request, dict[Fault, None]()
    used = {device for stage in plan.stages for device in stage.devices}
    names = {device.kind for device in request.cluster.devices if device.id in used}
    for kind in request.cluster.kinds:
        if kind.name in names and kind.fpga is not None and costs_by_shape(request, kind):
            found |= dict.fromkeys(demand_faults(request, kind.fpga))
    for fault in found:
        yield Fault(fault.code, fault.detail, f"/request{fault.pointer}")
