"""What every stage costs, as arrays over the cuts of a model: a stage between two cuts is a difference of their
entries, on the device in its place.

This is what the formulations optimise over. The simulator prices a finished plan layer by layer on its own
(`cost/pipeline.py`, `simulator/workload.py`), and each plan is judged by that. Where devices share a card, tensors skip
stages, or copies of parameters are reduced, the arrays hold only what a partition takes at least (`exact` False).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

from bapipe.cost import memory
from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.compute import layer_seconds
from bapipe.cost.fpga.cut_table import MAX_CUTS, StageSeconds
from bapipe.cost.fpga.demand import demands
from bapipe.cost.fpga.table import costs_by_shape, update_bandwidth
from bapipe.cost.transfer import Channel, channel
from bapipe.cuts import Array, CutSpace, Indices, Largest, Mask
from bapipe.graph import Graph
from bapipe.problem import Device, DeviceKind, Layer, PlanRequest

BoundaryManner = Literal["overlapped", "streaming", "fused", "ordered"]
"""How a transfer between two neighbours meets their compute; `fused` and `ordered` block it."""


@dataclass(frozen=True)
class PlaceCosts:
    """[cuts] seconds of one micro-batch of the layers inside, on the device in one place: forward, backward, both; and
    those of the optimizer step.

    `stage_s`: of a device on which a stage takes more than its layers do, [inner, outer] seconds of a forward and of a
    backward with so many micro-batches in flight, and such a share of the forward engine (None: in one piece); the
    others are then the least.
    """

    forward_s: Array
    backward_s: Array
    work_s: Array
    optimizer_s: Array
    stage_s: Callable[[int, float | None], tuple[Array, Array]] | None = None


@dataclass(frozen=True)
class Boundary:
    """Between two neighbours: [cuts] seconds of one transfer one way, and of one of its `chunks` where both stages
    stream.
    """

    transfer_s: Array
    chunk_s: Array
    chunks: int
    manner: BoundaryManner


@dataclass(frozen=True)
class CutCosts:
    """Prefix sums over cuts at one micro-batch size; seconds and bytes of one micro-batch.

    `places[p]` and `boundaries[p]`: on device p, and between it and the next. `forward_s`, `backward_s`, `work_s`: on
    whichever device each layer takes least, forward and backward together for `work_s`. `rigid`: [cuts] layers inside
    that cannot stream. `limit_bytes[p]`: what device p can hold, its reserve `reserve_bytes[p]` taken off, or infinity.

    `workspace_bytes`: of the stage between two cuts. `layer_bytes`: per position of the topological order, what a layer
    needs by itself with one micro-batch in flight. `tied`: positions of layers that share parameters, and the bytes of
    a copy. `pinned`: positions of layers with the places of their devices. `direct`: tensors may be sent past stages,
    and nothing is known of what crosses a cut. `by_shape`: some device is an FPGA that is costed by shape.
    """

    space: CutSpace
    training: bool
    receive_buffers: Literal["all", "in_flight"]
    places: tuple[PlaceCosts, ...]
    boundaries: tuple[Boundary, ...]
    forward_s: Array
    backward_s: Array
    work_s: Array
    rigid: Array
    parameter_bytes: Array
    static_bytes: Array
    stash_bytes: Array
    crossing_bytes: Array
    workspace_bytes: Largest
    layer_bytes: Array
    largest_layer_s: float
    limit_bytes: tuple[float, ...]
    reserve_bytes: tuple[int, ...]
    tied: tuple[tuple[tuple[int, ...], float], ...]
    pinned: tuple[tuple[int, int], ...]
    direct: bool
    exact: bool
    by_shape: bool

    @property
    def directions(self) -> int:
        """How often a tensor crosses a cut: forward, and in training its gradient back."""
        return 2 if self.training else 1

    @property
    def uniform(self) -> bool:
        """Whether all devices are equally fast."""
        return all(place is self.places[0] for place in self.places)

    def streams(self, inner: Indices, outer: Indices) -> Mask:
        """Whether all layers of the stages between cuts emit output while they read input."""
        return np.asarray(self.rigid[inner] == self.rigid[outer], dtype=np.bool_)

    def crossed(self, cuts: Indices) -> Mask:
        """Whether anything may cross the cuts."""
        return np.asarray((self.crossing_bytes[cuts] > 0) | self.direct, dtype=np.bool_)

    def memory_bytes(self, inner: Indices, outer: Indices, in_flight: int, num_microbatches: int) -> Array:
        """Peak bytes of the stage between two cuts, which broadcast; without the device's reserve."""
        stage = memory.StageMemory(
            static_bytes=self._static(inner, outer),
            stash_bytes_per_microbatch=self.stash_bytes[outer] - self.stash_bytes[inner],
            input_bytes_per_microbatch=self.crossing_bytes[inner],
            output_bytes_per_microbatch=self.crossing_bytes[outer],
            workspace_bytes=self.workspace_bytes(inner, outer),
        )
        return memory.peak_bytes(stage, in_flight, num_microbatches, self.receive_buffers, training=self.training)

    def _static(self, inner: Indices, outer: Indices) -> Array:
        static = self.static_bytes[outer] - self.static_bytes[inner]
        for positions, size in self.tied:
            static = static + self.holds(positions, inner, outer) * size
        return np.asarray(static)

    def holds(self, positions: Sequence[int], inner: Indices, outer: Indices) -> Mask:
        """Whether the stages between cuts hold any of the layers at some positions of the topological order."""
        held = np.zeros(np.broadcast_shapes(inner.shape, outer.shape), dtype=np.bool_)
        for position in positions:
            held |= ~self.space.holds(position, inner) & self.space.holds(position, outer)
        return held


def cut_costs(request: PlanRequest, space: CutSpace, microbatch_size: int) -> CutCosts:
    """The costs of `request` on its devices in their order."""
    profile, devices = request.profile, request.cluster.devices
    training = request.task == "training"
    direct = sends_past_stages(request, space.graph)
    crossing = space.crossing_bytes_per_sample * microbatch_size * (not direct)
    channels = [channel(request.cluster, source, target) for source, target in pairwise(devices)]

    def each(per_layer: Callable[[Layer], float]) -> Array:
        return np.array([per_layer(layer) for layer in profile.layers], dtype=float)

    static = each(lambda layer: memory.static_bytes(request, layer))
    stash = each(lambda layer: memory.stash_bytes_per_sample(request, layer)) * microbatch_size
    workspace = each(lambda layer: layer.workspace_bytes)
    order = list(space.graph.layers)
    times = _LayerTimes(request, microbatch_size)
    least_forward, least_backward, least_work = times.least_s()
    forward_s, backward_s = space.prefix_sums(least_forward), space.prefix_sums(least_backward)
    uniform = len({(device.kind, device.speed) for device in devices}) == 1

    return CutCosts(
        space=space,
        training=training,
        receive_buffers=request.cluster.receive_buffers,
        places=_places(request, space, times),
        boundaries=_boundaries(request, crossing, channels),
        forward_s=forward_s,
        backward_s=backward_s,
        work_s=forward_s + backward_s if uniform else space.prefix_sums(least_work),
        rigid=space.prefix_sums(each(lambda layer: not layer.streamable)),
        parameter_bytes=space.prefix_sums(each(lambda layer: layer.parameter_bytes)),
        static_bytes=space.prefix_sums(static),
        stash_bytes=space.prefix_sums(stash),
        crossing_bytes=crossing,
        workspace_bytes=space.largest(workspace[order]),
        layer_bytes=(static + stash + workspace)[order],
        largest_layer_s=float(least_work.max()),
        limit_bytes=tuple(memory_limit(request, position) for position in range(len(devices))),
        reserve_bytes=tuple(_kind_of(request, device).reserved_bytes for device in devices),
        tied=_tied(request, space.graph),
        pinned=_pinned(request, space.graph),
        direct=direct,
        exact=not direct and _is_known(request, space, channels),
        by_shape=costed_by_shape(request),
    )


def _is_known(request: PlanRequest, space: CutSpace, channels: Sequence[Channel]) -> bool:
    """Whether it is known what a stage takes, and nothing but its own transfers keeps a link busy."""
    tabulated = not costed_by_shape(request) or space.size <= MAX_CUTS
    return tabulated and not request.profile.tied_parameters and all(way.nic is None for way in channels)


def costed_by_shape(request: PlanRequest) -> bool:
    """Whether some device in use is an FPGA whose times are worked out from the shapes of layers."""
    used = {device.kind for device in request.cluster.devices}
    return any(costs_by_shape(request, kind) for kind in request.cluster.kinds if kind.name in used)


def sends_past_stages(request: PlanRequest, graph: Graph) -> bool:
    """Whether a tensor may go from a stage to one that is not the next."""
    if request.cluster.skip_tensors == "relay":
        return False
    skips = any(max(tensor.consumers, default=0) > tensor.source + 1 for tensor in graph.tensors)
    branches = any(p + 1 not in after for p, after in enumerate(graph.successors[:-1]))
    return skips or (branches and request.cuts == "any")


def memory_limit(request: PlanRequest, position: int) -> float:
    """Bytes that a plan may use on the device at `position`, its kind's reserve taken off; infinity: no limit."""
    device = request.cluster.devices[position]
    total = memory_limit_bytes(request.cluster, device)
    return float("inf") if total is None else float(total - _kind_of(request, device).reserved_bytes)


def _kind_of(request: PlanRequest, device: Device) -> DeviceKind:
    return next(kind for kind in request.cluster.kinds if kind.name == device.kind)


@dataclass(frozen=True)
class _LayerTimes:
    """Seconds of the layers on each kind and speed in use, in the order of `profile.layers`."""

    request: PlanRequest
    microbatch_size: int

    def on(self, device: Device) -> tuple[Array, Array]:
        """(forward, backward); of an FPGA that is costed by shape, no more than they can be with all of it."""
        kind, speed = _kind_of(self.request, device), device.speed
        if costs_by_shape(self.request, kind):
            least = np.array([demand.least_s for demand in demands(self.request, device, self.microbatch_size)])
            return least[:, 0], least[:, 1] + least[:, 2]
        seconds = layer_seconds(self.request, kind, self.microbatch_size)
        training = self.request.task == "training"
        return np.array(seconds.forward_s) / speed, np.array(seconds.backward_s) / speed * training

    def least_s(self) -> tuple[Array, Array, Array]:
        """(forward, backward, both together) where each layer takes least."""
        devices = {(d.kind, d.speed): d for d in self.request.cluster.devices}.values()
        pairs = [self.on(device) for device in devices]
        forward = np.min([pair[0] for pair in pairs], axis=0)
        backward = np.min([pair[1] for pair in pairs], axis=0)
        return forward, backward, np.min([pair[0] + pair[1] for pair in pairs], axis=0)


def _places(request: PlanRequest, space: CutSpace, times: _LayerTimes) -> tuple[PlaceCosts, ...]:
    moved = np.array([memory.optimizer_traffic_bytes(request, layer) for layer in request.profile.layers])
    known: dict[tuple[str, float], PlaceCosts] = {}
    tables = StageSeconds(request, space, times.microbatch_size)
    for device in request.cluster.devices:
        key = device.kind, device.speed
        if key not in known:
            kind = _kind_of(request, device)
            forward, backward = (space.prefix_sums(seconds) for seconds in times.on(device))
            rate = update_bandwidth(request, kind, device) or float("inf")
            stage_s = None
            if costs_by_shape(request, kind) and space.size <= MAX_CUTS:
                stage_s = partial(tables.on, device)
            updates = space.prefix_sums(moved) / rate
            known[key] = PlaceCosts(forward, backward, forward + backward, updates, stage_s)
    return tuple(known[device.kind, device.speed] for device in request.cluster.devices)


def _boundaries(request: PlanRequest, crossing: Array, channels: Sequence[Channel]) -> tuple[Boundary, ...]:
    kinds = {kind.name: kind.execution for kind in request.cluster.kinds}
    known: dict[tuple[object, ...], Boundary] = {}
    boundaries = []
    for (source, target), way in zip(pairwise(request.cluster.devices), channels, strict=True):
        asynchronous = kinds[source.kind] == kinds[target.kind] == "async"
        manner = way.link.exchange if way.link.mode == "blocking" else way.link.mode
        manner = "overlapped" if manner == "streaming" and not asynchronous else manner
        chunks = way.link.chunks if manner == "streaming" else 1
        key = (way.link, way.nic, manner)
        if key not in known:
            whole = np.array([way.seconds(size) for size in crossing])
            part = whole if chunks == 1 else np.array([way.seconds(size / chunks) for size in crossing])
            known[key] = Boundary(whole, part, chunks, manner)
        boundaries.append(known[key])
    return tuple(boundaries)


def _pinned(request: PlanRequest, graph: Graph) -> tuple[tuple[int, int], ...]:
    positions = {request.profile.layers[layer].id: p for p, layer in enumerate(graph.layers)}
    places = {device.id: place for place, device in enumerate(request.cluster.devices)}
    pins = [pin for pin in request.profile.pins if pin.device is not None]
    return tuple((positions[pin.layer], places[pin.device]) for pin in pins if pin.device is not None)


def _tied(request: PlanRequest, graph: Graph) -> tuple[tuple[tuple[int, ...], float], ...]:
    places = {request.profile.layers[layer].id: p for p, layer in enumerate(graph.layers)}
    return tuple(
        (tuple(places[name] for name in tied.layers), memory.tied_static_bytes(request, tied))
        for tied in request.profile.tied_parameters
    )
