"""What can be said in a request but is not searched yet: refused with its place, never silently ignored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bapipe.candidates import MAX_OPERATIONS, WITHOUT_FLUSH, candidates, left_out, microbatch_sizes
from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.compute import REFERENCE, measured_kind, proportional_times, usable_times
from bapipe.cost.cut_costs import sends_past_stages
from bapipe.cost.fpga.arrays import ELEMENT_BYTES
from bapipe.cost.fpga.demand import demands
from bapipe.cost.fpga.plausibility import doubtful_figures
from bapipe.cost.fpga.table import costs_by_shape
from bapipe.cost.roofline import missing_figures
from bapipe.cost.transfer import link_between
from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import unknown_reference
from bapipe.formulations.choice import solver_faults
from bapipe.graph import graph_of
from bapipe.link_modes import PIPELINES, blocks_somewhere, modes, pipelines_by_count, why_not
from bapipe.presets import device_kinds
from bapipe.problem import Layer, PlanRequest

SEARCHED = {
    "objective": ("step-time", "bottleneck"),
    "recomputation": ("never",),
    "device_order": ("fixed",),
}


def refuse_unsupported(request: PlanRequest) -> None:
    """Raises InvalidInputError with every part of `request` that is not searched yet, or that lacks its times."""
    faults = [
        *_schedule_faults(request),
        *_request_faults(request),
        *_time_faults(request),
        *_shape_faults(request),
    ]
    if faults:
        raise InvalidInputError(faults)


def assumptions(request: PlanRequest) -> tuple[str, ...]:
    """What a plan for `request` takes for granted, as warnings."""
    found = (
        *request.profile.warnings,
        *_time_warnings(request),
        *_size_warnings(request),
        *_device_warnings(request),
        *_sharing_warnings(request),
    )
    return tuple(dict.fromkeys(found))


def _schedule_faults(request: PlanRequest) -> Iterator[Fault]:
    """Schedules that the links or devices rule out, and what the bottleneck model does not know."""
    for index, name in enumerate(request.schedules or ()):
        if name in PIPELINES and not any(name in allowed for allowed in pipelines_by_count(request)):
            yield Fault("not_allowed", why_not(request, name), f"/schedules/{index}")
        if name in WITHOUT_FLUSH:
            yield from (Fault("unsupported", why, f"/schedules/{index}") for why in _not_without_flush(request, name))
    if request.objective == "bottleneck" and request.cluster.host_nic is not None:
        detail = "the bottleneck does not know cards that a host's devices share; leave it out, or use step-time"
        yield Fault("unsupported", detail, "/cluster/host_nic")
    if request.objective == "bottleneck" and _may_stop_in_a_circle(request):
        detail = (
            "over blocking links, devices that send tensors past each other may stop for each other in a circle, which "
            "the bottleneck does not know; use relay, or step-time"
        )
        yield Fault("unsupported", detail, "/cluster/skip_tensors")


def _may_stop_in_a_circle(request: PlanRequest) -> bool:
    """Whether three stages or more may exchange what takes time otherwise than each with the next."""
    most = min(len(request.cluster.devices), request.max_stages or len(request.cluster.devices))
    past = sends_past_stages(request, graph_of(request.profile))
    return most > 2 and past and blocks_somewhere(request.cluster)


def _not_without_flush(request: PlanRequest, name: str) -> Iterator[str]:
    """Why a schedule without a flush is not searched: its period is known in closed form where links overlap only."""
    cluster, tensors = request.cluster, graph_of(request.profile).tensors
    by_shape = any(costs_by_shape(request, kind) for kind in cluster.kinds if kind.name in _kinds_in_use(request))
    reasons = {
        f"{name} has no flush: use objective step-time, which is then the period": request.objective != "step-time",
        f"{name} updates weights, and inference has none to update": request.task == "inference",
        f"{name} is searched over overlapped links only; other ones can be simulated": set(
            modes(cluster, len(cluster.devices))
        )
        != {"overlapped"},
        f"{name} is not searched where a host's devices share a card": cluster.host_nic is not None,
        f"{name} would reduce tied parameters at every update; give each layer its own copy": bool(
            request.profile.tied_parameters
        ),
        f"{name} is not searched where tensors are sent past a stage; use relay": cluster.skip_tensors == "direct"
        and any(max(tensor.consumers, default=0) > tensor.source + 1 for tensor in tensors),
        f"{name} is not searched on FPGAs that are costed by the shapes of layers": by_shape,
    }
    yield from (why for why, wrong in reasons.items() if wrong)


def _request_faults(request: PlanRequest) -> Iterator[Fault]:
    for field, searched in SEARCHED.items():
        value = getattr(request, field)
        if value not in searched:
            detail = f"{field} {value!r} is not searched yet; use {' or '.join(searched)}"
            yield Fault("unsupported", detail, f"/{field}")
    known = [*(kind.name for kind in request.cluster.kinds), *device_kinds()]
    yield from unknown_reference(request.measured_on, known, "/measured_on", "device kind")
    if left_out(request) and not candidates(request):
        detail = f"more than {MAX_OPERATIONS} forwards a step; use larger micro-batches or a smaller batch"
        yield Fault("too_large", detail, "/microbatch_counts" if request.microbatch_counts else "/microbatch_sizes")
    yield from solver_faults(request)
    if request.objective == "bottleneck" and request.schedules == ("data-parallel",):
        detail = "the bottleneck is a model of pipelines; use objective step-time for data parallelism"
        yield Fault("unsupported", detail, "/schedules")


def _time_faults(request: PlanRequest) -> Iterator[Fault]:
    layers = request.profile.layers
    if _timed_kinds(request) and not any(layer.times for layer in layers):
        yield Fault("missing_times", "no layer has a time; give each its forward and backward", "/profile/layers")
    for name in _timed_kinds(request):
        untimed = [layer for layer in layers if layer.times and not usable_times(layer, name, request.measured_on)]
        if untimed:
            known = ", ".join(sorted({time.device_kind for layer in untimed for time in layer.times}))
            detail = (
                f"{len(untimed)} layers, {untimed[0].id!r} first, have times for {known} but not for {name}; "
                f"plan for one of those, or scale from one with measured_on, such as {untimed[0].times[0].device_kind}"
            )
            yield Fault("missing_times", detail, "/profile/layers")


def _time_warnings(request: PlanRequest) -> Iterator[str]:
    layers = request.profile.layers
    untimed = sum(not layer.times for layer in layers)
    if untimed and _timed_kinds(request):
        yield f"{untimed} of {len(layers)} layers have no time and are taken to need none"
    yield from _proportional_warnings(request)
    for name in _timed_kinds(request):
        if name == REFERENCE or all(_has_own_times(layer, name) for layer in layers if layer.times):
            continue
        if request.measured_on is None:
            yield f"there are no times for {name}: those of kind {REFERENCE} are taken unchanged"
        elif request.measured_on != name:
            yield f"times measured on {request.measured_on} are scaled to {name} by roofline"
            yield from _unscaled_warnings(request, name)


def _unscaled_warnings(request: PlanRequest, name: str) -> Iterator[str]:
    """What a roofline needs and a kind does not say."""
    own = next(kind for kind in request.cluster.kinds if kind.name == name)
    for kind in filter(None, (measured_kind(request), own)):
        for figure in missing_figures(kind, request.dtype):
            yield f"{kind.name} has no {figure}: the times of layers that it bounds are taken unchanged"


def _proportional_warnings(request: PlanRequest) -> Iterator[str]:
    for name in _timed_kinds(request):
        times = [usable_times(layer, name, request.measured_on) for layer in request.profile.layers if layer.times]
        single = {found[0].microbatch_size for found in times if len(found) == 1}
        if len(single) == 1 and set(microbatch_sizes(request)) != single:
            yield proportional_times(single.pop())
        measured = [time.microbatch_size for found in times if len(found) > 1 for time in found]
        beyond = [size for size in microbatch_sizes(request) if measured and size > max(measured)]
        if beyond:
            yield f"times are known up to micro-batches of {max(measured)}, and extended up to {beyond[-1]}"


def _size_warnings(request: PlanRequest) -> Iterator[str]:
    """Sizes that a hand-written profile may have left out."""
    profile = request.profile
    if len(profile.layers) > 1 and not any(layer.output_bytes_per_sample for layer in profile.layers):
        yield "no layer has output bytes: nothing is sent between stages"
    if not any(layer.parameter_bytes for layer in profile.layers):
        yield "no layer has parameter bytes: weights, gradients and optimizer state take no memory"
    joined = {name for edge in profile.edges or () for name in (edge.source, edge.target)}
    alone = [layer.id for layer in profile.layers if layer.id not in joined]
    if profile.edges is not None and alone and len(profile.layers) > 1:
        yield f"{len(alone)} layers are in no edge, {alone[0]!r} first: nothing is sent to them or from them"


def _device_warnings(request: PlanRequest) -> Iterator[str]:
    """What a hand-written cluster may have left out; kind `reference` is meant to be without."""
    cluster = request.cluster
    for kind in cluster.kinds:
        if kind.name == REFERENCE or kind.name not in _kinds_in_use(request):
            continue
        if any(memory_limit_bytes(cluster, d) is None for d in cluster.devices if d.kind == kind.name):
            yield f"{kind.name} has no memory_bytes: its memory is taken to be without limit"
        by_shape = kind.name not in _timed_kinds(request)
        if kind.memory_bandwidth_bytes_per_s is None and not by_shape and request.task == "training":
            yield f"{kind.name} has no memory_bandwidth_bytes_per_s: the optimizer step is taken to need no time"
    yield from doubtful_figures(cluster, set(_kinds_in_use(request)) - set(_timed_kinds(request)))
    links = [link_between(cluster, a, b) for a, b in pairwise(cluster.devices)]
    if any(link.bandwidth_bytes_per_s is None for link in links) and _kinds_in_use(request) != [REFERENCE]:
        yield "links without bandwidth_bytes_per_s: transfers over them are taken to need no time"


def _sharing_warnings(request: PlanRequest) -> Iterator[str]:
    batch, devices = request.batch_size, len(request.cluster.devices)
    small = left_out(request)
    if small:
        yield f"micro-batches of {small[-1]} samples and fewer are left out: a step of so many is too long to replay"
    if batch % devices and devices < batch:
        even = f"{batch - batch % devices} or {batch + devices - batch % devices}"
        yield f"{batch} samples do not share evenly among {devices} devices; {even} would, which helps data parallelism"
    if request.dtype != "fp32" and request.measured_on is None and _timed_kinds(request):
        yield f"dtype {request.dtype} changes no time: those of the profile are taken as they are"
    size, own = ELEMENT_BYTES[request.dtype], request.profile.bytes_per_parameter
    if size != own and len(_timed_kinds(request)) < len(_kinds_in_use(request)):
        yield (
            f"the profile's sizes are of numbers of {own} bytes, and {request.dtype} has {size}: traffic and memory "
            "are taken as they are; bapipe.precision.at_precision scales them"
        )


def _kinds_in_use(request: PlanRequest) -> list[str]:
    return list(dict.fromkeys(device.kind for device in request.cluster.devices))


def _timed_kinds(request: PlanRequest) -> list[str]:
    """The kinds in use for which layers need times; an FPGA may be costed by their shapes."""
    by_shape = {kind.name for kind in request.cluster.kinds if costs_by_shape(request, kind)}
    return [name for name in _kinds_in_use(request) if name not in by_shape]


def _shape_faults(request: PlanRequest) -> Iterator[Fault]:
    """What is missing where FPGAs are costed by shape, and where that is not searched."""
    first = {device.kind: device for device in reversed(request.cluster.devices)}
    for name, device in first.items():
        if name not in _timed_kinds(request):
            try:
                demands(request, device, 1)
            except InvalidInputError as error:
                yield from error.faults
    if len(_timed_kinds(request)) < len(first) and request.objective == "bottleneck":
        detail = "what a stage takes on an FPGA depends on what stays on the chip; use objective step-time"
        yield Fault("unsupported", detail, "/objective")


def _has_own_times(layer: Layer, kind: str) -> bool:
    return any(time.device_kind == kind for time in layer.times)
