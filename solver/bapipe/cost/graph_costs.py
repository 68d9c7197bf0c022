"""What every layer and every tensor costs by itself, for formulations that work on the graph and not on its cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bapipe.cost import memory
from bapipe.cost.compute import layer_seconds
from bapipe.cuts import Array
from bapipe.graph import Graph
from bapipe.problem import Layer, PlanRequest


@dataclass(frozen=True)
class TiedCopy:
    """Parameters of which each stage that holds one of `layers` (positions) keeps a copy of `static_bytes`."""

    layers: tuple[int, ...]
    static_bytes: float


@dataclass(frozen=True)
class GraphCosts:
    """Seconds and bytes of one micro-batch, by position of the topological order and by device of the cluster.

    `work_s`: [devices, layers] forward and backward at the device's speed. `static_bytes`, `stash_bytes`,
    `workspace_bytes`: [layers]. `tensor_bytes`: [tensors].
    """

    work_s: Array
    static_bytes: Array
    stash_bytes: Array
    workspace_bytes: Array
    tensor_bytes: Array
    tied: tuple[TiedCopy, ...]


def graph_costs(request: PlanRequest, graph: Graph, microbatch_size: int) -> GraphCosts:
    """The costs of `request` at one micro-batch size; its devices may be of several kinds and speeds."""
    layers = [request.profile.layers[index] for index in graph.layers]
    position = {layer.id: p for p, layer in enumerate(layers)}

    def each(per_layer: Callable[[Layer], float]) -> Array:
        return np.array([per_layer(layer) for layer in layers], dtype=float)

    return GraphCosts(
        work_s=_work_s(request, graph, microbatch_size),
        static_bytes=each(lambda layer: memory.static_bytes(request, layer)),
        stash_bytes=each(lambda layer: memory.stash_bytes_per_sample(request, layer)) * microbatch_size,
        workspace_bytes=each(lambda layer: layer.workspace_bytes),
        tensor_bytes=np.array([tensor.bytes_per_sample for tensor in graph.tensors], dtype=float) * microbatch_size,
        tied=tuple(
            TiedCopy(tuple(position[name] for name in tied.layers), memory.tied_static_bytes(request, tied))
            for tied in request.profile.tied_parameters
        ),
    )


def _work_s(request: PlanRequest, graph: Graph, microbatch_size: int) -> Array:
    order, training = list(graph.layers), request.task == "training"
    by_kind: dict[str, Array] = {}
    for kind in request.cluster.kinds:
        if any(device.kind == kind.name for device in request.cluster.devices):
            seconds = layer_seconds(request, kind, microbatch_size)
            by_kind[kind.name] = (np.array(seconds.forward_s) + np.array(seconds.backward_s) * training)[order]
    return np.array([by_kind[device.kind] / device.speed for device in request.cluster.devices])
