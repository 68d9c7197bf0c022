"""Where a model can be cut: sets of layers closed under predecessors, and what crosses each.

A pipeline of S stages is a chain of cuts ∅ = c_0 ⊂ c_1 ⊂ … ⊂ c_S = all; stage s holds c_{s+1} minus c_s. Everything
that adds up over layers is a difference between two cuts, so the searches work on arrays over cuts, whatever the shape
of the graph. Along one topological order the cuts are its prefixes (`PrefixCuts`); of a graph with branches there are
more (`LatticeCuts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bapipe.graph import Graph, graph_of
from bapipe.problem import Cuts, ModelProfile

MAX_CUTS = 100_000
"""Beyond so many closed sets the search keeps to one topological order, and says so."""

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Largest = Callable[[Indices, Indices], Array]


@dataclass(frozen=True)
class CutSpace(ABC):
    """Cuts in order of size; the first is empty, the last holds every layer.

    `complete`: these are all the cuts that were asked for. `sizes`: [cuts] layers inside.
    `crossing_bytes_per_sample`: [cuts] of the tensors made inside and read outside, each once.
    """

    graph: Graph
    complete: bool
    sizes: Indices
    crossing_bytes_per_sample: Array

    @property
    def size(self) -> int:
        """Number of cuts."""
        return len(self.sizes)

    @property
    @abstractmethod
    def chain(self) -> Indices:
        """The cuts that are prefixes of the topological order, in order of size."""

    @abstractmethod
    def inside(self, inner: Indices, outer: Indices) -> Mask:
        """Whether each inner cut is a proper subset of the outer cut; the two broadcast against each other."""

    @abstractmethod
    def holds(self, position: int, cuts: Indices) -> Mask:
        """Whether the layer at `position` of the topological order is inside each of `cuts`, of any shape."""

    def largest(self, per_position: Array) -> Largest:
        """Finds the largest of the positive values of the layers between two cuts, which broadcast; else 0."""

        def between(inner: Indices, outer: Indices) -> Array:
            found = np.zeros(np.broadcast_shapes(inner.shape, outer.shape))
            for position in map(int, np.flatnonzero(per_position)):
                held = ~self.holds(position, inner) & self.holds(position, outer)
                np.maximum(found, held * per_position[position], out=found)
            return found

        return between

    @abstractmethod
    def prefix_sums(self, per_layer: Array) -> Array:
        """[cuts] sum over the layers inside; `per_layer` is in the order of `profile.layers`."""

    @abstractmethod
    def stage_positions(self, inner: int, outer: int) -> tuple[int, ...]:
        """Positions of the layers in `outer` and not in `inner`."""

    def stages_of(self, cuts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Positions of the layers of each stage, the last of which ends at the last cut."""
        return tuple(self.stage_positions(inner, outer) for inner, outer in pairwise((0, *cuts)))


@dataclass(frozen=True)
class PrefixCuts(CutSpace):
    """Cuts that are prefixes of one topological order."""

    @property
    def chain(self) -> Indices:
        """All of them."""
        return np.arange(self.size)

    def inside(self, inner: Indices, outer: Indices) -> Mask:
        """Whether the inner cut is the shorter prefix."""
        return np.asarray(inner < outer, dtype=np.bool_)

    def holds(self, position: int, cuts: Indices) -> Mask:
        """Whether the prefix reaches past the layer at `position`."""
        return np.asarray(self.sizes[cuts] > position, dtype=np.bool_)

    def largest(self, per_position: Array) -> Largest:
        """Of a run of the order: the larger of two runs of a power of two layers, which cover it."""
        if not per_position.any():
            return super().largest(per_position)
        runs = _largest_of_runs(per_position)

        def between(inner: Indices, outer: Indices) -> Array:
            first, last = np.broadcast_arrays(self.sizes[inner], self.sizes[outer])
            power = np.frexp(np.maximum(last - first, 1).astype(float))[1] - 1
            begin = np.minimum(first, len(per_position) - 1)
            end = np.maximum(last - (1 << power), 0)
            return np.where(last > first, np.maximum(runs[power, begin], runs[power, end]), 0.0)

        return between

    def prefix_sums(self, per_layer: Array) -> Array:
        """[cuts] cumulative sums along the order."""
        sums = np.concatenate([[0.0], np.cumsum(per_layer[list(self.graph.layers)])])
        return np.asarray(sums[self.sizes])

    def stage_positions(self, inner: int, outer: int) -> tuple[int, ...]:
        """A run of the order."""
        return tuple(range(int(self.sizes[inner]), int(self.sizes[outer])))


@dataclass(frozen=True)
class LatticeCuts(CutSpace):
    """All closed sets. `members[c, p]`: is the layer at position p inside cut c; `words`: the same in 64 bits."""

    members: Mask
    words: NDArray[np.uint64]

    @property
    def chain(self) -> Indices:
        """The cuts whose last layer is their size-th."""
        last = np.where(self.sizes > 0, self.members.shape[1] - self.members[:, ::-1].argmax(axis=1), 0)
        return np.flatnonzero(self.sizes == last)

    def inside(self, inner: Indices, outer: Indices) -> Mask:
        """Whether no layer of the inner cut is outside the outer one."""
        contained = np.asarray(inner != outer, dtype=np.bool_)
        for word in range(self.words.shape[1]):
            contained &= (self.words[inner, word] & ~self.words[outer, word]) == 0
        return contained

    def holds(self, position: int, cuts: Indices) -> Mask:
        """Membership of the layer at `position`."""
        return np.asarray(self.members[cuts, position])

    def prefix_sums(self, per_layer: Array) -> Array:
        """[cuts] sums over the members."""
        return np.asarray(self.members @ per_layer[list(self.graph.layers)])

    def stage_positions(self, inner: int, outer: int) -> tuple[int, ...]:
        """The difference of two sets."""
        return tuple(map(int, np.flatnonzero(self.members[outer] & ~self.members[inner])))


def _largest_of_runs(values: Array) -> Array:
    """[power, start] the largest of the 2^power values from `start` on, as far as there are so many."""
    runs = [values]
    while (step := 1 << (len(runs) - 1)) < len(values):
        shifted = np.concatenate([runs[-1][step:], np.zeros(step)])
        runs.append(np.maximum(runs[-1], shifted))
    return np.stack(runs)


def cut_space(profile: ModelProfile, kind: Cuts, limit: int = MAX_CUTS) -> CutSpace:
    """The cuts of `profile` that its groups and its pins to the first and last stage allow.

    Where `any` has more than `limit` cuts, the result is that of `topological-order`, and not `complete`.
    """
    graph = graph_of(profile)
    sets = closed_sets(graph, limit) if kind == "any" else None
    if sets is not None and len(sets) > len(graph.layers) + 1:
        return _lattice(profile, graph, sets, complete=True)
    return _prefixes(profile, graph, complete=sets is not None or kind == "topological-order")


def closed_set_pool(profile: ModelProfile, graph: Graph, sets: Iterable[int]) -> LatticeCuts:
    """Some closed sets, as bit masks of positions, and the prefixes of the topological order."""
    prefixes = ((1 << size) - 1 for size in range(len(graph.layers) + 1))
    pool = sorted({*sets, *prefixes}, key=lambda mask: (mask.bit_count(), mask))
    return _lattice(profile, graph, pool, complete=False)


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
            if len(found) + len(following) > limit:
                return None
        found += sorted(following)
        level = following
    return found


def _prefixes(profile: ModelProfile, graph: Graph, complete: bool) -> PrefixCuts:
    sizes = np.arange(len(graph.layers) + 1)
    crossing = np.zeros(len(sizes))
    for tensor in graph.tensors:
        crossing[tensor.source + 1 : max(tensor.consumers) + 1] += tensor.bytes_per_sample
    everywhere = PrefixCuts(graph, complete, sizes, crossing)
    allowed = _allowed(profile, everywhere)
    return PrefixCuts(graph, complete, sizes[allowed], crossing[allowed])


def _lattice(profile: ModelProfile, graph: Graph, sets: list[int], *, complete: bool) -> LatticeCuts:
    width = (len(graph.layers) + 63) // 64 * 8
    raw = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in sets), dtype=np.uint8)
    packed = raw.reshape(len(sets), width)
    members = np.unpackbits(packed, axis=1, bitorder="little")[:, : len(graph.layers)].astype(np.bool_)
    everywhere = LatticeCuts(
        graph, complete, members.sum(axis=1), _crossing_bytes(graph, members), members, packed.view(np.uint64)
    )
    allowed = _allowed(profile, everywhere)
    return LatticeCuts(
        graph,
        complete,
        everywhere.sizes[allowed],
        everywhere.crossing_bytes_per_sample[allowed],
        members[allowed],
        everywhere.words[allowed],
    )


def _allowed(profile: ModelProfile, space: CutSpace) -> Indices:
    """The cuts that split no group, have the layers pinned to the first stage inside, and those of the last outside."""
    position = {profile.layers[layer].id: p for p, layer in enumerate(space.graph.layers)}
    cuts = np.arange(space.size)
    allowed = np.ones(space.size, dtype=np.bool_)
    for group in profile.groups:
        count = np.sum([space.holds(position[name], cuts) for name in group], axis=0)
        allowed &= (count == 0) | (count == len(group))
    for pin in profile.pins:
        if pin.stage is not None:
            allowed &= space.holds(position[pin.layer], cuts) == (pin.stage == "first")
    allowed[[0, -1]] = True
    return np.flatnonzero(allowed)


def _crossing_bytes(graph: Graph, members: Mask) -> Array:
    crossing = np.zeros(len(members))
    for tensor in graph.tensors:
        leaves = members[:, tensor.source] & ~members[:, list(tensor.consumers)].all(axis=1)
        crossing += leaves * tensor.bytes_per_sample
    return crossing
