"""Compute time of layers on a device kind at a micro-batch size."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from bapipe.cost import roofline
from bapipe.problem import DeviceKind, Layer, LayerTime, ModelProfile

REFERENCE = "reference"


@dataclass(frozen=True)
class LayerSeconds:
    """Seconds of one micro-batch per layer, in the order of `profile.layers`, at speed 1."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]


def layer_seconds(
    profile: ModelProfile, kind: DeviceKind, microbatch_size: int, measured_on: DeviceKind | None = None
) -> LayerSeconds:
    """Seconds of every layer for one micro-batch on `kind`.

    Times measured on `kind` are used as they are. Where there are none, times of kind `reference` are taken unchanged,
    or scaled by roofline from `measured_on`. A layer without times takes none.
    """
    pairs = [_pair(layer, kind, microbatch_size, measured_on) for layer in profile.layers]
    return LayerSeconds(tuple(f for f, _ in pairs), tuple(b for _, b in pairs))


def at_microbatch(points: tuple[LayerTime, ...], size: int, overhead_s: float) -> tuple[float, float]:
    """(forward, backward) seconds at micro-batch `size` from measured points.

    One point (b0, t0): t(b) = o + (t0 - o)·b/b0 with launch overhead o. Several: affine between neighbours, and beyond
    the ends along the nearest segment, never below zero.
    """
    ordered = sorted(points, key=lambda point: point.microbatch_size)
    return (
        _interpolate([(p.microbatch_size, p.forward_s) for p in ordered], size, overhead_s),
        _interpolate([(p.microbatch_size, p.backward_s) for p in ordered], size, overhead_s),
    )


def _pair(layer: Layer, kind: DeviceKind, size: int, measured_on: DeviceKind | None) -> tuple[float, float]:
    own = tuple(time for time in layer.times if time.device_kind == kind.name)
    if own:
        return at_microbatch(own, size, kind.launch_overhead_s)
    known = measured_on.name if measured_on is not None else REFERENCE
    borrowed = tuple(t for t in layer.times if t.device_kind in (known, REFERENCE))
    if not borrowed:
        return 0.0, 0.0
    forward, backward = at_microbatch(borrowed, size, kind.launch_overhead_s)
    factor = roofline.scale(layer, measured_on, kind) if measured_on is not None else 1.0
    return forward * factor, backward * factor


def _interpolate(points: list[tuple[int, float]], size: int, overhead_s: float) -> float:
    if len(points) == 1:
        base, seconds = points[0]
        overhead = min(overhead_s, seconds)
        return overhead + (seconds - overhead) * size / base
    sizes = [base for base, _ in points]
    right = min(max(bisect_left(sizes, size), 1), len(points) - 1)
    (b0, t0), (b1, t1) = points[right - 1], points[right]
    return max(0.0, t0 + (t1 - t0) * (size - b0) / (b1 - b0))
