"""What can be said in a request but is not searched yet: refused with its place, never silently ignored."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.cost.compute import REFERENCE, usable_times
from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import unknown_reference
from bapipe.problem import Layer, PlanRequest
from bapipe.simulator import unsupported

SEARCHED = {
    "objective": ("step-time", "bottleneck"),
    "recomputation": ("never",),
    "device_order": ("fixed",),
    "solver": ("auto", "dp"),
}


def refuse_unsupported(request: PlanRequest) -> None:
    """Raises InvalidInputError with every part of `request` that is not searched yet, or that lacks its times."""
    faults = [
        *unsupported(request),
        *_request_faults(request),
        *_placement_faults(request),
        *_time_faults(request),
    ]
    if faults:
        raise InvalidInputError(faults)


def assumptions(request: PlanRequest) -> tuple[str, ...]:
    """What a plan for `request` takes for granted, as warnings."""
    return (*request.profile.warnings, *_time_warnings(request))


def _request_faults(request: PlanRequest) -> Iterator[Fault]:
    for field, searched in SEARCHED.items():
        value = getattr(request, field)
        if value not in searched:
            detail = f"{field} {value!r} is not searched yet; use {' or '.join(searched)}"
            yield Fault("unsupported", detail, f"/{field}")
    known = [kind.name for kind in request.cluster.kinds]
    yield from unknown_reference(request.measured_on, known, "/measured_on", "device kind in the cluster")
    if request.objective == "bottleneck" and request.schedules == ("data-parallel",):
        detail = "the bottleneck is a model of pipelines; use objective step-time for data parallelism"
        yield Fault("unsupported", detail, "/schedules")


def _placement_faults(request: PlanRequest) -> Iterator[Fault]:
    for index, pin in enumerate(request.profile.pins):
        if pin.device is not None:
            detail = "pins to a device are not searched yet; pin to the first or last stage"
            yield Fault("unsupported", detail, f"/profile/pins/{index}/device")
    if len({(device.kind, device.speed) for device in request.cluster.devices}) > 1:
        detail = "devices of several kinds or speeds are not searched yet; use one kind at one speed"
        yield Fault("unsupported", detail, "/cluster/devices")


def _time_faults(request: PlanRequest) -> Iterator[Fault]:
    layers = request.profile.layers
    if not any(layer.times for layer in layers):
        yield Fault("missing_times", "no layer has a time; give each its forward and backward", "/profile/layers")
    for name in _kinds_in_use(request):
        untimed = [layer for layer in layers if layer.times and not usable_times(layer, name, request.measured_on)]
        if untimed:
            known = ", ".join(sorted({time.device_kind for layer in untimed for time in layer.times}))
            detail = (
                f"{len(untimed)} layers, {untimed[0].id!r} first, have times for {known} but not for {name}; "
                "plan for one of those, or say with measured_on what to scale from"
            )
            yield Fault("missing_times", detail, "/profile/layers")


def _time_warnings(request: PlanRequest) -> Iterator[str]:
    layers = request.profile.layers
    untimed = sum(not layer.times for layer in layers)
    if untimed:
        yield f"{untimed} of {len(layers)} layers have no time and are taken to need none"
    for name in _kinds_in_use(request):
        if name == REFERENCE or all(_has_own_times(layer, name) for layer in layers if layer.times):
            continue
        if request.measured_on is None:
            yield f"there are no times for {name}: those of kind {REFERENCE} are taken unchanged"
        elif request.measured_on != name:
            yield f"times measured on {request.measured_on} are scaled to {name} by roofline"


def _kinds_in_use(request: PlanRequest) -> list[str]:
    return list(dict.fromkeys(device.kind for device in request.cluster.devices))


def _has_own_times(layer: Layer, kind: str) -> bool:
    return any(time.device_kind == kind for time in layer.times)
