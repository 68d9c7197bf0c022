"""The layers of a profile as an indexed DAG: one topological order, and the tensors that its edges carry."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

from bapipe.problem import Edge, ModelProfile


@dataclass(frozen=True)
class Tensor:
    """What one layer wrote and `consumers` (positions) read; `bytes_per_sample` of the micro-batch."""

    source: int
    consumers: tuple[int, ...]
    bytes_per_sample: float


@dataclass(frozen=True)
class Graph:
    """Layers by position in the topological order that takes the smallest layer index first.

    `layers[p]` is the index into `profile.layers` of the layer at position p; predecessors and tensors use positions.
    """

    layers: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    tensors: tuple[Tensor, ...]


def graph_of(profile: ModelProfile) -> Graph:
    """The DAG of `profile`; its validation has ruled out cycles and dangling edges."""
    edges = _edges(profile)
    index = {layer.id: i for i, layer in enumerate(profile.layers)}
    targets: list[set[int]] = [set() for _ in profile.layers]
    for edge in edges:
        targets[index[edge.source]].add(index[edge.target])
    order = _smallest_index_first(targets)
    position = {layer: p for p, layer in enumerate(order)}
    successors = tuple(tuple(sorted(position[t] for t in targets[layer])) for layer in order)
    predecessors: list[list[int]] = [[] for _ in order]
    for source, following in enumerate(successors):
        for target in following:
            predecessors[target].append(source)
    place = {layer.id: position[i] for i, layer in enumerate(profile.layers)}
    return Graph(tuple(order), tuple(map(tuple, predecessors)), successors, _tensors(profile, edges, place))


def _edges(profile: ModelProfile) -> tuple[Edge, ...]:
    if profile.edges is not None:
        return profile.edges
    names = [layer.id for layer in profile.layers]
    return tuple(Edge(source=a, target=b) for a, b in pairwise(names))


def _smallest_index_first(targets: list[set[int]]) -> list[int]:
    waiting = [0] * len(targets)
    for following in targets:
        for target in following:
            waiting[target] += 1
    ready = [layer for layer, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        layer = heapq.heappop(ready)
        order.append(layer)
        for target in targets[layer]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, target)
    return order


def _tensors(profile: ModelProfile, edges: tuple[Edge, ...], place: dict[str, int]) -> tuple[Tensor, ...]:
    outputs = {layer.id: layer.output_bytes_per_sample for layer in profile.layers}
    readers: dict[tuple[str, str | int | None], set[int]] = {}
    sizes: dict[tuple[str, str | int | None], float] = {}
    for number, edge in enumerate(edges):
        own = edge.bytes_per_sample is not None
        key = (edge.source, edge.tensor if edge.tensor is not None else number if own else None)
        size = edge.bytes_per_sample if edge.bytes_per_sample is not None else outputs[edge.source]
        readers.setdefault(key, set()).add(place[edge.target])
        sizes[key] = max(sizes.get(key, 0.0), size)
    return tuple(
        Tensor(place[key[0]], tuple(sorted(readers[key])), sizes[key])
        for key in sorted(readers, key=lambda key: (place[key[0]], str(key[1])))
    )
