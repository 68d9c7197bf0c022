"""Where a model can be cut: sets of layers closed under predecessors, and what crosses each.

A pipeline of S stages is a chain of cuts ∅ = c_0 ⊂ c_1 ⊂ … ⊂ c_S = all; stage s holds c_{s+1} minus c_s. Everything
that adds up over layers is a difference between two cuts, so the searches work on arrays over cuts, whatever the shape
of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bapipe.graph import Graph, graph_of
from bapipe.problem import Cuts, ModelProfile

MAX_CUTS = 100_000
"""Beyond so many closed sets the search keeps to one topological order, and says so."""


@dataclass(frozen=True)
class CutSpace:
    """Cuts in order of size; the first is empty, the last holds every layer.

    `nested`: each cut is inside the next. `complete`: these are all the cuts that were asked for. `members[c, p]`: is
    the layer at position p of the topological order inside cut c. `chain[k]` is the cut of the k first layers, -1
    where side constraints forbid it. `crossing_bytes_per_sample[c]`: tensors made inside and read outside, each once.
    """

    graph: Graph
    nested: bool
    complete: bool
    members: NDArray[np.bool_]
    words: NDArray[np.uint64]
    chain: NDArray[np.intp]
    crossing_bytes_per_sample: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of cuts."""
        return len(self.members)

    def inside(self, cut: int) -> NDArray[np.bool_]:
        """[cuts] which cuts are proper subsets of `cut`."""
        return np.asarray(self.inside_block(np.arange(self.size), np.array([cut]))[:, 0], dtype=np.bool_)

    def inside_block(self, inner: NDArray[np.intp], outer: NDArray[np.intp]) -> NDArray[np.bool_]:
        """[inner, outer] whether each inner cut is a proper subset of each outer cut."""
        if self.nested:
            return np.asarray(inner[:, None] < outer[None, :], dtype=np.bool_)
        contained = np.asarray(inner[:, None] != outer[None, :], dtype=np.bool_)
        for word in range(self.words.shape[1]):
            contained &= (self.words[inner, word][:, None] & ~self.words[outer, word][None, :]) == 0
        return contained

    def prefix_sums(self, per_layer: NDArray[np.float64]) -> NDArray[np.float64]:
        """[cuts] sum over the layers inside; `per_layer` is in the order of `profile.layers`."""
        ordered = per_layer[list(self.graph.layers)]
        if self.nested:
            sums = np.concatenate([[0.0], np.cumsum(ordered)])
            return np.asarray(sums[self.members.sum(axis=1)])
        return np.asarray(self.members @ ordered)

    def stage_layers(self, inner: int, outer: int) -> tuple[int, ...]:
        """Indices into `profile.layers` of the layers in `outer` and not in `inner`, in topological order."""
        positions = np.flatnonzero(self.members[outer] & ~self.members[inner])
        return tuple(self.graph.layers[p] for p in positions)


def cut_space(profile: ModelProfile, kind: Cuts, limit: int = MAX_CUTS) -> CutSpace:
    """The cuts of `profile` that its groups and its pins to the first and last stage allow.

    Where `any` has more than `limit` cuts, the result is that of `topological-order`, and not `complete`.
    """
    graph = graph_of(profile)
    sets = closed_sets(graph, limit) if kind == "any" else None
    complete = sets is not None or kind == "topological-order"
    nested = sets is None or len(sets) == len(graph.layers) + 1
    if sets is None:
        sets = [(1 << k) - 1 for k in range(len(graph.layers) + 1)]
    members = _membership(sets, len(graph.layers))
    members = members[_allowed(profile, graph, members)]
    return CutSpace(
        graph, nested, complete, members, _packed(members), _chain(members), _crossing_bytes(graph, members)
    )


def closed_sets(graph: Graph, limit: int) -> list[int] | None:
    """Every set of positions closed under predecessors, as bit masks by size; None beyond `limit` of them."""
    needs = [sum(1 << p for p in before) for before in graph.predecessors]
    level, found = {0: frozenset(p for p, need in enumerate(needs) if not need)}, [0]
    while level:
        following: dict[int, frozenset[int]] = {}
        for mask, ready in level.items():
            for position in ready:
                larger = mask | 1 << position
                if larger not in following:
                    freed = (s for s in graph.successors[position] if needs[s] & larger == needs[s])
                    following[larger] = (ready - {position}).union(freed)
        found += sorted(following)
        if len(found) > limit:
            return None
        level = following
    return found


def _membership(sets: list[int], num_layers: int) -> NDArray[np.bool_]:
    width = (num_layers + 7) // 8
    raw = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in sets), dtype=np.uint8)
    bits = np.unpackbits(raw.reshape(len(sets), width), axis=1, bitorder="little")
    return bits[:, :num_layers].astype(np.bool_)


def _packed(members: NDArray[np.bool_]) -> NDArray[np.uint64]:
    padding = -members.shape[1] % 64
    padded = np.pad(members, ((0, 0), (0, padding)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _allowed(profile: ModelProfile, graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    position = {profile.layers[layer].id: p for p, layer in enumerate(graph.layers)}
    allowed = np.ones(len(members), dtype=np.bool_)
    for group in profile.groups:
        count = members[:, [position[name] for name in group]].sum(axis=1)
        allowed &= (count == 0) | (count == len(group))
    for pin in profile.pins:
        if pin.stage is not None:
            allowed &= members[:, position[pin.layer]] == (pin.stage == "first")
    allowed[[0, -1]] = True
    return allowed


def _chain(members: NDArray[np.bool_]) -> NDArray[np.intp]:
    sizes = members.sum(axis=1)
    last = np.where(members.any(axis=1), members.shape[1] - members[:, ::-1].argmax(axis=1), 0)
    chain = np.full(members.shape[1] + 1, -1, dtype=np.intp)
    prefixes = np.flatnonzero(sizes == last)
    chain[sizes[prefixes]] = prefixes
    return chain


def _crossing_bytes(graph: Graph, members: NDArray[np.bool_]) -> NDArray[np.float64]:
    crossing = np.zeros(len(members))
    for tensor in graph.tensors:
        leaves = members[:, tensor.source] & ~members[:, list(tensor.consumers)].all(axis=1)
        crossing += leaves * tensor.bytes_per_sample
    return crossing
