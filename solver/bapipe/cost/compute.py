"""Compute time of layers on a device kind at a micro-batch size."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from bapipe.cost import roofline
from bapipe.presets import device_kinds
from bapipe.problem import DeviceKind, Layer, LayerTime, PlanRequest

REFERENCE = "reference"
"""The device kind of times that were measured on a device of which nothing is known."""

Point = tuple[int, float]
"""Micro-batch size, seconds."""


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one micro-batch per layer, in the order of `profile.layers`, at speed 1."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]


def layer_seconds(request: PlanRequest, kind: DeviceKind, microbatch_size: int) -> LayerSeconds:
    """Seconds of every layer for one micro-batch on `kind`.

    Times measured on `kind` are used as they are. Where there are none, those of `request.measured_on` or of kind
    `reference` are scaled by roofline from `measured_on`, or taken unchanged when it is not given. A layer without
    times takes none.
    """
    measured_on = measured_kind(request)
    pairs = [_pair(request, layer, kind, measured_on, microbatch_size) for layer in request.profile.layers]
    return LayerSeconds(tuple(forward for forward, _ in pairs), tuple(backward for _, backward in pairs))


def layer_splits(
    request: PlanRequest, kind: DeviceKind, microbatch_size: int
) -> tuple[tuple[float, float] | None, ...]:
    """(input gradient, weight gradient) seconds of every layer, as `layer_seconds`; None where they are not known.

    Each is an operation with a launch of its own. A layer without times takes none.
    """
    measured_on = measured_kind(request)
    return tuple(_split(request, layer, kind, measured_on, microbatch_size) for layer in request.profile.layers)


def proportional_times(size: int) -> str:
    """The warning about times at a single micro-batch size; importers that know give it with the profile."""
    return f"times are of micro-batches of {size} only: at another size they are taken as proportional to it"


def measured_kind(request: PlanRequest) -> DeviceKind | None:
    """The kind that `request.measured_on` names: of the cluster, else a preset; None where there is none."""
    known = {kind.name: kind for kind in request.cluster.kinds}
    return known.get(request.measured_on or "") or device_kinds().get(request.measured_on or "")


def usable_times(layer: Layer, kind: str, measured_on: str | None) -> tuple[LayerTime, ...]:
    """The times of `layer` that say how long it takes on `kind`: its own, else those they are borrowed from."""
    for name in (kind, measured_on, REFERENCE):
        found = tuple(time for time in layer.times if time.device_kind == name)
        if found:
            return found
    return ()


def at_microbatch(points: list[Point], size: int, overhead_s: float) -> float:
    """Seconds at micro-batch `size` from measured points.

    One point (b0, t0): t(b) = o + (t0 - o)·b/b0 with launch overhead o. Several: affine between neighbours, and beyond
    the ends along the nearest segment, never below zero.
    """
    if len(points) == 1:
        base, seconds = points[0]
        overhead = min(overhead_s, seconds)
        return overhead + (seconds - overhead) * size / base
    ordered = sorted(points)
    right = min(max(bisect_left([base for base, _ in ordered], size), 1), len(ordered) - 1)
    (b0, t0), (b1, t1) = ordered[right - 1], ordered[right]
    return max(0.0, t0 + (t1 - t0) * (size - b0) / (b1 - b0))


def _pair(
    request: PlanRequest, layer: Layer, kind: DeviceKind, measured_on: DeviceKind | None, size: int
) -> tuple[float, float]:
    times = usable_times(layer, kind.name, request.measured_on)
    if not times:
        return 0.0, 0.0
    factors = [_factor(request, layer, time, kind, measured_on) for time in times]
    scaled = list(zip(times, factors, strict=True))
    return (
        at_microbatch([(time.microbatch_size, time.forward_s * f) for time, f in scaled], size, kind.launch_overhead_s),
        at_microbatch(
            [(time.microbatch_size, time.backward_s * f) for time, f in scaled], size, kind.launch_overhead_s
        ),
    )


def _split(
    request: PlanRequest, layer: Layer, kind: DeviceKind, measured_on: DeviceKind | None, size: int
) -> tuple[float, float] | None:
    times = usable_times(layer, kind.name, request.measured_on)
    inputs: list[Point] = []
    weights: list[Point] = []
    for time in times:
        if time.input_gradient_s is None or time.weight_gradient_s is None:
            return None
        factor = _factor(request, layer, time, kind, measured_on)
        inputs.append((time.microbatch_size, time.input_gradient_s * factor))
        weights.append((time.microbatch_size, time.weight_gradient_s * factor))
    if not times:
        return 0.0, 0.0
    overhead_s = kind.launch_overhead_s
    return at_microbatch(inputs, size, overhead_s), at_microbatch(weights, size, overhead_s)


def _factor(
    request: PlanRequest, layer: Layer, time: LayerTime, kind: DeviceKind, measured_on: DeviceKind | None
) -> float:
    if measured_on is None or time.device_kind == kind.name:
        return 1.0
    return roofline.scale(layer, measured_on, kind, request.dtype, time.microbatch_size)
