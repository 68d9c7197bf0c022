"""What every stage costs, as arrays over the cuts of a model: a stage between two cuts is a difference of their
entries.

This is what the formulations optimise over. The simulator prices a finished plan layer by layer on its own
(`cost/pipeline.py`), and each plan is judged by that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from typing import Literal

import numpy as np

from bapipe.cost import memory
from bapipe.cost.compute import layer_seconds
from bapipe.cost.pipeline import memory_limit_bytes
from bapipe.cost.transfer import link_between, transfer_s
from bapipe.cuts import Array, CutSpace, Indices, Largest
from bapipe.problem import DeviceKind, Layer, PlanRequest


@dataclass(frozen=True)
class CutCosts:
    """Prefix sums over cuts at one micro-batch size; seconds and bytes of one micro-batch.

    `transfer_s[p]`: [cuts] one way over the boundary behind device p. `limit_bytes[p]`: what device p can hold, its
    reserve taken off, or infinity. `workspace_bytes`: of the stage between two cuts. `layer_bytes`: per position of the
    topological order, what a layer needs by itself with one micro-batch in flight.
    """

    space: CutSpace
    training: bool
    receive_buffers: Literal["all", "in_flight"]
    forward_s: Array
    backward_s: Array
    optimizer_s: Array
    static_bytes: Array
    stash_bytes: Array
    crossing_bytes: Array
    workspace_bytes: Largest
    layer_bytes: Array
    largest_layer_s: float
    transfer_s: tuple[Array, ...]
    limit_bytes: tuple[float, ...]

    @property
    def work_s(self) -> Array:
        """[cuts] forward and backward seconds of the layers inside."""
        return self.forward_s + self.backward_s

    @property
    def directions(self) -> int:
        """How often a tensor crosses a cut: forward, and in training its gradient back."""
        return 2 if self.training else 1

    def memory_bytes(self, inner: Indices, outer: Indices, in_flight: int, num_microbatches: int) -> Array:
        """Peak bytes of the stage between two cuts, which broadcast; without the device's reserve."""
        stage = memory.StageMemory(
            static_bytes=self.static_bytes[outer] - self.static_bytes[inner],
            stash_bytes_per_microbatch=self.stash_bytes[outer] - self.stash_bytes[inner],
            input_bytes_per_microbatch=self.crossing_bytes[inner],
            output_bytes_per_microbatch=self.crossing_bytes[outer],
            workspace_bytes=self.workspace_bytes(inner, outer),
        )
        return memory.peak_bytes(stage, in_flight, num_microbatches, self.receive_buffers, training=self.training)


def cut_costs(request: PlanRequest, space: CutSpace, microbatch_size: int) -> CutCosts:
    """The costs of `request` on its devices in their order, which are of one kind and speed."""
    profile, devices = request.profile, request.cluster.devices
    kind = next(kind for kind in request.cluster.kinds if kind.name == devices[0].kind)
    speed = devices[0].speed
    seconds = layer_seconds(request, kind, microbatch_size)
    training = request.task == "training"
    crossing = space.crossing_bytes_per_sample * microbatch_size

    def each(per_layer: Callable[[Layer], float]) -> Array:
        return np.array([per_layer(layer) for layer in profile.layers], dtype=float)

    static = each(lambda layer: memory.static_bytes(request, layer))
    stash = each(lambda layer: memory.stash_bytes_per_sample(request, layer)) * microbatch_size
    workspace = each(lambda layer: layer.workspace_bytes)
    order = list(space.graph.layers)

    return CutCosts(
        space=space,
        training=training,
        receive_buffers=request.cluster.receive_buffers,
        forward_s=space.prefix_sums(np.array(seconds.forward_s)) / speed,
        backward_s=space.prefix_sums(np.array(seconds.backward_s)) / speed * training,
        optimizer_s=space.prefix_sums(each(lambda layer: memory.optimizer_traffic_bytes(request, layer)))
        / _memory_rate(kind),
        static_bytes=space.prefix_sums(static),
        stash_bytes=space.prefix_sums(stash),
        crossing_bytes=crossing,
        workspace_bytes=space.largest(workspace[order]),
        layer_bytes=(static + stash + workspace)[order],
        largest_layer_s=max(map(add, seconds.forward_s, (b * training for b in seconds.backward_s))) / speed,
        transfer_s=_transfers(request, crossing),
        limit_bytes=tuple(memory_limit(request, position) for position in range(len(devices))),
    )


def memory_limit(request: PlanRequest, position: int) -> float:
    """Bytes that a plan may use on the device at `position`, its kind's reserve taken off; infinity: no limit."""
    device = request.cluster.devices[position]
    kind = next(kind for kind in request.cluster.kinds if kind.name == device.kind)
    total = memory_limit_bytes(request.cluster, device)
    return float("inf") if total is None else float(total - kind.reserved_bytes)


def reserved_bytes(request: PlanRequest) -> int:
    """The most that a kind in use keeps for itself on each device."""
    used = {device.kind for device in request.cluster.devices}
    return max(kind.reserved_bytes for kind in request.cluster.kinds if kind.name in used)


def _memory_rate(kind: DeviceKind) -> float:
    return kind.memory_bandwidth_bytes_per_s or float("inf")


def _transfers(request: PlanRequest, crossing: Array) -> tuple[Array, ...]:
    devices = request.cluster.devices
    known: dict[tuple[float | None, float], Array] = {}
    boundaries = []
    for source, target in pairwise(devices):
        link = link_between(request.cluster, source, target)
        key = (link.bandwidth_bytes_per_s, link.latency_s)
        if key not in known:
            known[key] = np.array([transfer_s(link, size) for size in crossing])
        boundaries.append(known[key])
    return tuple(boundaries)
