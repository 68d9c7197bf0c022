"""What can be said in a request but is not searched yet: refused with its place, never silently ignored."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import unknown_reference
from bapipe.problem import Cluster, ModelProfile, PlanRequest

SEARCHED = {
    "objective": ("step-time", "bottleneck"),
    "recomputation": ("never",),
    "device_order": ("fixed",),
    "solver": ("auto", "dp"),
}


def refuse_unsupported(request: PlanRequest) -> None:
    """Raises InvalidInputError with every part of `request` that is not searched yet."""
    faults = [*_request_faults(request), *_profile_faults(request.profile), *_cluster_faults(request.cluster)]
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


def _profile_faults(profile: ModelProfile) -> Iterator[Fault]:
    if profile.tied_parameters:
        detail = "tied parameters are not searched yet; give each layer its own copy"
        yield Fault("unsupported", detail, "/profile/tied_parameters")
    for index, pin in enumerate(profile.pins):
        if pin.device is not None:
            detail = "pins to a device are not searched yet; pin to the first or last stage"
            yield Fault("unsupported", detail, f"/profile/pins/{index}/device")


def _cluster_faults(cluster: Cluster) -> Iterator[Fault]:
    if len({(device.kind, device.speed) for device in cluster.devices}) > 1:
        detail = "devices of several kinds or speeds are not searched yet; use one kind at one speed"
        yield Fault("unsupported", detail, "/cluster/devices")
    if cluster.skip_tensors == "direct":
        detail = "skip tensors sent direct are not searched yet; use relay"
        yield Fault("unsupported", detail, "/cluster/skip_tensors")
    if cluster.host_nic is not None:
        yield Fault("unsupported", "a shared NIC is not searched yet; leave it out", "/cluster/host_nic")
    used = {device.kind for device in cluster.devices}
    for index, kind in enumerate(cluster.kinds):
        if kind.execution == "async" and kind.name in used:
            detail = "asynchronous devices are not searched yet; use execution sync"
            yield Fault("unsupported", detail, f"/cluster/kinds/{index}/execution")
    yield from _link_mode_faults(cluster)


def _link_mode_faults(cluster: Cluster) -> Iterator[Fault]:
    links = cluster.links
    named = [("within_host", links.within_host), ("between_hosts", links.between_hosts)]
    named.append(("between_racks", links.between_racks))
    named += [(f"pairs/{index}/link", pair.link) for index, pair in enumerate(links.pairs)]
    for place, link in named:
        if link is not None and link.mode != "overlapped":
            detail = f"{link.mode} links are not searched yet; use overlapped"
            yield Fault("unsupported", detail, f"/cluster/links/{place}/mode")


def _time_warnings(request: PlanRequest) -> Iterator[str]:
    for name in dict.fromkeys(device.kind for device in request.cluster.devices):
        layers = request.profile.layers
        measured = [any(time.device_kind == name for time in layer.times) for layer in layers]
        untimed = sum(not layer.times for layer in layers)
        if untimed:
            yield f"{untimed} of {len(layers)} layers have no time and are taken to need none"
        if sum(measured) + untimed < len(layers):
            yield _borrowed_time_warning(request, name)


def _borrowed_time_warning(request: PlanRequest, kind: str) -> str:
    if request.measured_on is not None:
        return f"times measured on {request.measured_on} are scaled to {kind} by roofline"
    return f"there are no times for {kind}: those of kind reference are taken unchanged"
