"""Random requests for the least bottleneck with what dynamic programming over cuts leaves to the models."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from bapipe.problem import Device, DeviceKind, Layer, ModelProfile, Pin, PlanRequest, TiedParameters
from judges.bottleneck import best_placements, every_placement
from judges.strategies import KIND, requests, sizes, with_memory

OTHER_KIND = "other"
COMMUNICATION = ("none", "overlap", "serial")
SCHEDULES = (None, None, ("1f1b",), ("gpipe", "1f1b-so"), ("1f1b", "gpipe"))
Side = Callable[[st.DrawFn, PlanRequest], PlanRequest]


@st.composite
def bottleneck_requests(draw: st.DrawFn, *sides: str, **fields: Any) -> PlanRequest:
    """A request for the least bottleneck, with all of the named side constraints, and no memory limit."""
    fixed = {
        "objective": "bottleneck",
        "communication": draw(st.sampled_from(COMMUNICATION)),
        "schedules": draw(st.sampled_from(SCHEDULES)),
        **fields,
    }
    request = draw(requests(**fixed))
    for side in sides:
        request = SIDES[side](draw, request)
    return request


@st.composite
def bound_by_memory(draw: st.DrawFn, base: st.SearchStrategy[PlanRequest]) -> PlanRequest:
    """A request in which some placement fits, and none of those that would be best without a limit."""
    request = draw(base)
    placements = every_placement(request)
    assume(placements)
    wanted = min(max(placement.peak_bytes) for placement in best_placements(placements))
    smaller = sorted({max(p.peak_bytes) for p in placements if ceil(max(p.peak_bytes)) < wanted})
    assume(smaller)
    return with_memory(request, ceil(draw(st.sampled_from(smaller))))


def _with_profile(request: PlanRequest, **changes: Any) -> PlanRequest:
    fields = {name: getattr(request.profile, name) for name in ModelProfile.model_fields}
    return request.model_copy(update={"profile": ModelProfile(**{**fields, **changes})})


def _pinned(draw: st.DrawFn, request: PlanRequest) -> PlanRequest:
    """One to three layers on the first or last stage, or on a device; now and then they contradict each other."""
    layers = [layer.id for layer in request.profile.layers]
    places = st.one_of(
        st.fixed_dictionaries({"stage": st.sampled_from(("first", "last"))}),
        st.fixed_dictionaries({"device": st.sampled_from([device.id for device in request.cluster.devices])}),
    )
    count = draw(st.integers(1, min(3, len(layers))))
    chosen = draw(st.permutations(layers))[:count]
    return _with_profile(request, pins=tuple(Pin(layer=layer, **draw(places)) for layer in chosen))


def _grouped(draw: st.DrawFn, request: PlanRequest) -> PlanRequest:
    """One or two groups of any layers; they may share one."""
    layers = [layer.id for layer in request.profile.layers]
    assume(len(layers) > 1)
    group = st.lists(st.sampled_from(layers), min_size=2, max_size=3, unique=True).map(tuple)
    return _with_profile(request, groups=tuple(draw(st.lists(group, min_size=1, max_size=2))))


def _tied(draw: st.DrawFn, request: PlanRequest) -> PlanRequest:
    """One or two sets of layers that share parameters."""
    layers = [layer.id for layer in request.profile.layers]
    assume(len(layers) > 1)
    tied = st.builds(
        TiedParameters,
        layers=st.lists(st.sampled_from(layers), min_size=2, max_size=3, unique=True).map(tuple),
        parameter_bytes=sizes.map(lambda size: 4 * size + 4),
    )
    return _with_profile(request, tied_parameters=tuple(draw(st.lists(tied, min_size=1, max_size=2))))


def _mixed(draw: st.DrawFn, request: PlanRequest) -> PlanRequest:
    """Devices of two kinds, on which layers differ by no common factor, and of several speeds."""
    request = _with_profile(request, layers=tuple(_timed_twice(draw, layer) for layer in request.profile.layers))
    other = DeviceKind(name=OTHER_KIND, reserved_bytes=draw(st.sampled_from((0, 5))))
    devices = tuple(_redrawn(draw, device) for device in request.cluster.devices)
    cluster = request.cluster.model_copy(update={"devices": devices, "kinds": (*request.cluster.kinds, other)})
    return request.model_copy(update={"cluster": cluster})


def _timed_twice(draw: st.DrawFn, layer: Layer) -> Layer:
    factor = draw(st.sampled_from((0.25, 0.5, 1.0, 2.0, 3.0)))
    slower = [
        time.model_copy(
            update={
                "device_kind": OTHER_KIND,
                "forward_s": time.forward_s * factor,
                "backward_s": time.backward_s * factor,
            }
        )
        for time in layer.times
    ]
    return layer.model_copy(update={"times": (*layer.times, *slower)})


def _redrawn(draw: st.DrawFn, device: Device) -> Device:
    kind, speed = draw(st.sampled_from((KIND, OTHER_KIND))), draw(st.sampled_from((0.5, 1.0, 1.0, 2.0)))
    return device.model_copy(update={"kind": kind, "speed": speed})


def _direct(draw: st.DrawFn, request: PlanRequest) -> PlanRequest:
    """Tensors go straight to each stage that reads them."""
    return request.model_copy(update={"cluster": request.cluster.model_copy(update={"skip_tensors": "direct"})})


SIDES: dict[str, Side] = {"pins": _pinned, "groups": _grouped, "tied": _tied, "mixed": _mixed, "direct": _direct}
