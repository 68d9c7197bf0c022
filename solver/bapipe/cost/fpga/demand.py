"""What a layer asks of an FPGA for one micro-batch: compute, and bytes off chip for whatever does not stay on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Literal

from bapipe.cost.fpga.arrays import Arrays
from bapipe.cost.fpga.phases import Phase, Phases, phases_of
from bapipe.cost.memory import gradient_bytes, stash_bytes_per_sample
from bapipe.errors import Fault, InvalidInputError
from bapipe.graph import graph_of
from bapipe.operators import IN_STREAM, OperatorKind
from bapipe.problem import Device, Fpga, Layer, PlanRequest

ItemName = Literal["weights", "gradients", "stash", "input"]
ByPhase = tuple[float, float, float]
"""Of forward, input gradient, weight gradient."""

NOTHING: ByPhase = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Item:
    """Something of a layer that may stay on the chip: its bytes there (`per_microbatch`: for each micro-batch in
    flight), and the bytes that a micro-batch moves off chip otherwise.
    """

    layer: str
    name: ItemName
    size_bytes: float
    traffic_bytes: ByPhase
    per_microbatch: bool = False

    def held_bytes(self, in_flight: int) -> float:
        """Bytes on the chip with so many micro-batches in flight."""
        return self.size_bytes * (in_flight if self.per_microbatch else 1)


@dataclass(frozen=True)
class Demand:
    """One layer for one micro-batch, or several that run as one (`fused`).

    `traffic_bytes` are those that go off chip whatever stays on it; an `in_stream` layer works on what the layer before
    it makes, as it is made. `least_s`: compute on all slices, were arrays divisible; over any part of them it takes at
    least as long over that part.
    """

    layers: tuple[str, ...]
    in_stream: bool
    compute_s: ByPhase
    least_s: ByPhase
    traffic_bytes: ByPhase
    items: tuple[Item, ...]
    macs: ByPhase
    operations: ByPhase
    on_chip_bytes: ByPhase

    def off_chip_bytes(self, resident: Collection[Item]) -> ByPhase:
        """Bytes off chip by phase when the items given stay on the chip."""
        total = self.traffic_bytes
        for item in self.items:
            if item not in resident:
                total = _sum(total, item.traffic_bytes)
        return total

    def seconds(self, resident: Collection[Item], bandwidth_bytes_per_s: float) -> ByPhase:
        """By phase, the larger of compute and traffic."""
        moved = self.off_chip_bytes(resident)
        forward, inputs, weights = (
            max(compute, size / bandwidth_bytes_per_s) for compute, size in zip(self.compute_s, moved, strict=True)
        )
        return forward, inputs, weights

    def with_input(self, size_bytes: float, *, training: bool) -> Demand:
        """The first layer of a stage that receives `size_bytes` for each micro-batch: they are written as they come,
        read by the forward, and in training kept and read again for the gradient of the weights.
        """
        if not size_bytes:
            return self
        moved = (2 * size_bytes, 0.0, size_bytes) if training else (2 * size_bytes, 0.0, 0.0)
        item = Item(self.layers[0], "input", size_bytes, moved, per_microbatch=True)
        return replace(self, items=(*self.items, item))

    def followed_by(self, other: Demand) -> Demand:
        """Both as one: what one moves may hide behind what the other computes."""
        return Demand(
            layers=self.layers + other.layers,
            in_stream=self.in_stream,
            compute_s=_sum(self.compute_s, other.compute_s),
            least_s=_sum(self.least_s, other.least_s),
            traffic_bytes=_sum(self.traffic_bytes, other.traffic_bytes),
            items=self.items + other.items,
            macs=_sum(self.macs, other.macs),
            operations=_sum(self.operations, other.operations),
            on_chip_bytes=_sum(self.on_chip_bytes, other.on_chip_bytes),
        )


def fused(stage: Sequence[Demand]) -> list[Demand]:
    """The layers of a stage, in their order, each with those behind it that work in stream."""
    groups: list[Demand] = []
    for demand in stage:
        if demand.in_stream and groups:
            groups[-1] = groups[-1].followed_by(demand)
        else:
            groups.append(demand)
    return groups


def demands(
    request: PlanRequest, device: Device, microbatch_size: int, forward_share: float | None = None
) -> tuple[Demand, ...]:
    """The demand of every layer on `device`, in the order of `profile.layers`, at the device's speed.

    `forward_share`: of the slices, what the engine for forwards has where another does the backwards.

    Raises:
        InvalidInputError: a `missing_shape` for each layer that does not say what it computes; `missing_rate` where the
            device's kind has no rate for the request's type of numbers.
    """
    kind = next(kind for kind in request.cluster.kinds if kind.name == device.kind)
    fpga = kind.fpga
    if fpga is None:
        raise ValueError(f"device kind {kind.name!r} is no FPGA")
    faults = demand_faults(request, fpga)
    if faults:
        raise InvalidInputError(faults)
    engines = (
        Arrays(fpga, request.dtype, forward_share or 1.0),
        Arrays(fpga, request.dtype, 1.0 if forward_share is None else 1.0 - forward_share),
    )
    passing = _passing_bytes_per_sample(request)
    return tuple(
        _demand(request, layer, engines, microbatch_size, passes, device.speed)
        for layer, passes in zip(request.profile.layers, passing, strict=True)
    )


def off_chip_rate(fpga: Fpga, device: Device) -> float:
    """Bytes a second between a device and its memory beside the chip, in bursts."""
    return fpga.off_chip_bandwidth_bytes_per_s * fpga.off_chip_efficiency * device.speed


def buffer_bytes(fpga: Fpga) -> int:
    """On-chip bytes for what passes from layer to layer."""
    return fpga.on_chip_bytes // 8 if fpga.buffer_bytes is None else fpga.buffer_bytes


def demand_faults(request: PlanRequest, fpga: Fpga) -> list[Fault]:
    """Why the demands of a request's layers on such a device cannot be worked out, with pointers into the request."""
    return [*_shape_faults(request), *_rate_faults(request, fpga)]


def _shape_faults(request: PlanRequest) -> list[Fault]:
    """A `missing_shape` for each layer from which an FPGA's costs cannot be worked out."""
    detail = "layer {!r} (kind {!r}) has no operators: an FPGA's costs come from shapes; say what it computes"
    return [
        Fault("missing_shape", detail.format(layer.id, layer.kind), f"/profile/layers/{k}/operators")
        for k, layer in enumerate(request.profile.layers)
        if layer.operators is None
    ]


def _rate_faults(request: PlanRequest, fpga: Fpga) -> list[Fault]:
    if request.dtype in fpga.macs_per_dsp:
        return []
    known = ", ".join(fpga.macs_per_dsp)
    return [Fault("missing_rate", f"the FPGA has macs_per_dsp for {known}, not for {request.dtype}", "/dtype")]


def _demand(
    request: PlanRequest, layer: Layer, engines: tuple[Arrays, Arrays], samples: int, passing: float, speed: float
) -> Demand:
    forward, backward = engines
    whole = replace(forward, share=1.0)
    parts = [phases_of(operator) for operator in layer.operators or ()]
    phases = 3 if request.task == "training" else 1

    def each(value: Callable[[Phase, OperatorKind, int], float]) -> ByPhase:
        sums = [0.0, 0.0, 0.0]
        for number in range(phases):
            sums[number] = sum(value(part.each[number], part.kind, number) for part in parts)
        return sums[0], sums[1], sums[2]

    traffic, items = _traffic(request, layer, parts, samples, _spilled(passing * samples, forward.fpga))
    return Demand(
        layers=(layer.id,),
        in_stream=works_in_stream(layer),
        compute_s=each(lambda phase, kind, n: (backward if n else forward).seconds(phase, kind, samples) / speed),
        least_s=each(lambda phase, kind, n: whole.least_seconds(phase, kind, samples) / speed),
        traffic_bytes=traffic,
        items=items,
        macs=each(lambda phase, kind, n: float(sum(product.macs for product in phase.products) * samples)),
        operations=each(lambda phase, kind, n: float(phase.operations * samples)),
        on_chip_bytes=each(lambda phase, kind, n: forward.on_chip_bytes(phase, samples)),
    )


def _spilled(passing_bytes: float, fpga: Fpga) -> float:
    """What a layer hands to the next off chip: all of it, where a layer's input and output do not fit the buffers."""
    return passing_bytes if 2 * passing_bytes > buffer_bytes(fpga) else 0.0


def _traffic(
    request: PlanRequest, layer: Layer, parts: Sequence[Phases], samples: int, spilled: float
) -> tuple[ByPhase, tuple[Item, ...]]:
    """Bytes that go off chip whatever stays on it, and the items that may stay.

    Weights, also those that are tied to another layer's, are read by the forward and by the input gradient. A gradient
    is read and written as each micro-batch adds to it. A stash is written by the forward, and read by the phase of the
    backward that needs it. What is handed to the next layer off chip is written and read, forward and backward; as much
    of it as the stash holds is the stash's own.
    """
    training = request.task == "training"
    element = request.profile.bytes_per_parameter
    reads = float(sum(part.forward_reads + part.sample_reads * samples for part in parts) * element)
    back = float(sum(part.input_reads for part in parts) * element)
    tied = sum(each.parameter_bytes for each in request.profile.tied_parameters if layer.id in each.layers)
    weights = Item(layer.id, "weights", float(layer.parameter_bytes + tied), (reads, 0.0, 0.0))
    if not training:
        return (2 * spilled, 0.0, 0.0), (weights,) if reads else ()
    rows = sum(part.sample_reads for part in parts) * samples * element
    size = float(gradient_bytes(layer) + tied)
    gradients = Item(layer.id, "gradients", size, (0.0, 0.0, 2 * min(size, rows) if rows else 2 * size))
    stash = stash_bytes_per_sample(request, layer) * samples
    kept = min(stash, spilled)
    weighted = any(part.weight_gradient.products for part in parts)
    needed = (stash + kept, 0.0, stash) if weighted else (stash + kept, stash, 0.0)
    items = (
        replace(weights, traffic_bytes=(reads, back, 0.0)),
        *(each for each in (gradients,) if any(part.weight_gradient != Phase() for part in parts)),
        Item(layer.id, "stash", stash, needed, per_microbatch=True),
    )
    return (2 * (spilled - kept), 2 * spilled, 0.0), tuple(item for item in items if any(item.traffic_bytes))


def _passing_bytes_per_sample(request: PlanRequest) -> list[float]:
    """Of each layer, the bytes that later layers read as a tensor of its own: none where all work on it in stream."""
    profile = request.profile
    graph = graph_of(profile)
    passing = [0.0] * len(profile.layers)
    for tensor in graph.tensors:
        readers = [profile.layers[graph.layers[reader]] for reader in tensor.consumers]
        if any(not works_in_stream(reader) for reader in readers):
            passing[graph.layers[tensor.source]] += tensor.bytes_per_sample
    return passing


def works_in_stream(layer: Layer) -> bool:
    """Whether all that a layer computes works on what the layer before it makes, as it is made."""
    return all(operator.kind in IN_STREAM for operator in layer.operators or ())


def _sum(one: ByPhase, other: ByPhase) -> ByPhase:
    forward, inputs, weights = map(add, one, other)
    return forward, inputs, weights
