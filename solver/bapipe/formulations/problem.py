"""The bottleneck problem of a request: over all candidates at once, on the graph itself and on its cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from bapipe.candidates import Candidate
from bapipe.cost.cut_costs import CutCosts, cut_costs, memory_limit
from bapipe.cost.graph_costs import GraphCosts, graph_costs
from bapipe.cost.transfer import link_between
from bapipe.cuts import CutSpace, Mask
from bapipe.graph import Graph
from bapipe.problem import Link, PlanRequest
from bapipe.schedules import in_flight

MAX_REACH = 6_000
"""Layers up to which it is worked out which layers come before which: a square table of one byte an entry."""


@dataclass(frozen=True)
class Crossing:
    """A tensor (by its number in the graph) that crosses every cut between its source and the last of its readers.

    `last_readers` have no other reader behind them: the tensor is needed until all of them are placed.
    """

    tensor: int
    source: int
    readers: tuple[int, ...]
    last_readers: tuple[int, ...]


@dataclass(frozen=True)
class Partition:
    """A candidate with the layers of each of its stages, as positions of the topological order."""

    candidate: Candidate
    stages: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class BottleneckProblem:
    """One of `candidates`, and a stage for each layer, such that the largest stage load × M is least, within memory.

    `space` holds the cuts that are enumerated: all that the request allows, or those of its topological order.
    `may_be_empty`: stages may be, and are then left out of partitions.
    """

    request: PlanRequest
    space: CutSpace
    candidates: tuple[Candidate, ...]
    may_be_empty: bool = False
    _graph_costs: dict[int, GraphCosts] = field(default_factory=dict, compare=False)
    _cut_costs: dict[int, CutCosts] = field(default_factory=dict, compare=False)

    def along(self, space: CutSpace) -> BottleneckProblem:
        """The same problem over other cuts of the same graph."""
        return replace(self, space=space, _cut_costs={})

    def eased(self, most_s: float) -> BottleneckProblem:
        """A problem with the same optimum, if that is at most `most_s`, and fewer decisions.

        Candidates whose bound is higher are left out. Where the stages are interchangeable, a partition into fewer of
        them is one into as many of which some are empty: only the candidate with most is left of a micro-batch size.
        """
        able = tuple(c for c in self.candidates if self.bound_s(c) <= most_s * (1 + 1e-9))
        if not able or not self._interchangeable:
            return replace(self, candidates=able or self.candidates)
        first = {candidate.microbatch_size: candidate for candidate in reversed(able)}
        most = {size: max(c.num_devices for c in able if c.microbatch_size == size) for size in first}
        if any(candidate.num_devices < most[size] for size, candidate in first.items()):
            return replace(self, candidates=able)
        return replace(self, candidates=tuple(reversed(first.values())), may_be_empty=True)

    @cached_property
    def _interchangeable(self) -> bool:
        """Whether any number of stages is allowed, and a stage takes and needs as much wherever it is."""
        places, cluster = range(self.most_stages), self.request.cluster
        kinds = {(cluster.devices[p].kind, cluster.devices[p].speed) for p in places}
        links = {self.link(p, p + 1) for p in places[:-1]}
        counts = {(c.microbatch_size, c.num_devices) for c in self.candidates}
        every = {(size, p + 1) for size in self.by_size for p in places}
        limited = any(self.limit_bytes(p) < float("inf") for p in places)
        relayed = cluster.skip_tensors == "relay" and not self.request.profile.pins
        return len(kinds) == 1 and len(links) <= 1 and counts == every and not limited and relayed

    def stands_for(self, candidate: Candidate) -> Candidate | None:
        """The candidate of this problem whose partitions have those of `candidate` among them, if there is one."""
        if candidate in self.candidates or not self.may_be_empty:
            return candidate
        return next((c for c in self.candidates if c.microbatch_size == candidate.microbatch_size), None)

    def partition(self, candidate: Candidate, stages: Iterable[Iterable[int]]) -> Partition:
        """The partition into those of the stages that have a layer."""
        held = tuple(filter(None, (tuple(stage) for stage in stages)))
        return Partition(replace(candidate, num_devices=len(held)), held)

    @property
    def graph(self) -> Graph:
        """The layers by position of their topological order."""
        return self.space.graph

    @property
    def training(self) -> bool:
        """Whether gradients cross the cuts back."""
        return self.request.task == "training"

    @property
    def relays_tensors(self) -> bool:
        """Whether what crosses a cut passes between the two stages at it, and that takes time."""
        return self.request.cluster.skip_tensors == "relay" and self.request.communication != "none"

    @property
    def directions(self) -> int:
        """How often a tensor crosses a cut."""
        return 2 if self.training else 1

    @cached_property
    def most_stages(self) -> int:
        """Stages of the candidate that has most."""
        return max(candidate.num_devices for candidate in self.candidates)

    def costs(self, microbatch_size: int) -> GraphCosts:
        """Costs of layers and tensors at one micro-batch size."""
        if microbatch_size not in self._graph_costs:
            self._graph_costs[microbatch_size] = graph_costs(self.request, self.graph, microbatch_size)
        return self._graph_costs[microbatch_size]

    def cut_costs(self, microbatch_size: int) -> CutCosts:
        """Costs over the cuts of `space` at one micro-batch size."""
        if microbatch_size not in self._cut_costs:
            self._cut_costs[microbatch_size] = cut_costs(self.request, self.space, microbatch_size)
        return self._cut_costs[microbatch_size]

    def in_flight(self, candidate: Candidate, stage: int) -> int:
        """Micro-batches in flight at most on a stage of a candidate."""
        count = candidate.num_microbatches
        return in_flight(candidate.schedule, stage, candidate.num_devices, count, training=self.training)

    def link(self, source: int, target: int) -> Link:
        """The link between the devices at two positions."""
        devices = self.request.cluster.devices
        return link_between(self.request.cluster, devices[source], devices[target])

    def limit_bytes(self, position: int) -> float:
        """What the device at `position` can hold, its reserve taken off; infinity: no limit."""
        return memory_limit(self.request, position)

    def bound_s(self, candidate: Candidate) -> float:
        """What no partition of a candidate can beat: the work shared by all of its devices, and its largest layer."""
        work = self.costs(candidate.microbatch_size).work_s[: candidate.num_devices]
        fastest = work.min(axis=0)
        shared = 1 / (1 / work.sum(axis=1)).sum() if self._proportional(work) else fastest.sum() / len(work)
        return float(max(shared, fastest.max())) * candidate.num_microbatches

    @cached_property
    def least_s(self) -> float:
        """What no candidate can beat."""
        return min(self.bound_s(candidate) for candidate in self.candidates)

    @cached_property
    def most_s(self) -> float:
        """What no partition exceeds: all layers on the slowest device, and every tensor on the slowest link of all."""
        places = range(self.most_stages)
        links = [self.link(a, b) for a in places for b in places if a != b]
        rates = [link.bandwidth_bytes_per_s for link in links if link.bandwidth_bytes_per_s is not None]
        latency_s = max((link.latency_s for link in links), default=0.0)
        most = 0.0
        for size in self.by_size:
            costs = self.costs(size)
            once_s = latency_s + (float(costs.tensor_bytes.sum()) / min(rates) if rates else 0.0)
            exchange_s = 2 * self.most_stages * self.directions * once_s
            load_s = float(costs.work_s.max(axis=0).sum()) + exchange_s
            most = max(most, load_s * self.num_microbatches(size))
        return most

    @staticmethod
    def _proportional(work: np.ndarray) -> bool:
        """Whether the devices differ by a factor alone, so that their speeds add up."""
        totals = work.sum(axis=1, keepdims=True)
        return bool(totals.all() and np.allclose(work / totals, work[:1] / totals[:1], rtol=1e-12, atol=0))

    @cached_property
    def precedence(self) -> tuple[tuple[int, int], ...]:
        """Pairs of positions of which the first is in no later stage than the second."""
        pairs = {(source, target) for source, targets in enumerate(self.graph.successors) for target in targets}
        if self.request.cuts == "topological-order":
            pairs = set(pairwise(range(len(self.graph.layers))))
        return tuple(sorted(pairs))

    @cached_property
    def undominated(self) -> tuple[Candidate, ...]:
        """The candidates but for those that never have fewer micro-batches in flight than an earlier one of the same
        size and number of stages: loads are the same, and memory is never less.
        """
        kept: list[Candidate] = []
        for candidate in self.candidates:
            if not any(self._dominates(other, candidate) for other in kept):
                kept.append(candidate)
        return tuple(kept)

    def schedules_for(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """The candidates of the same size and number of stages, in which a partition has the same loads."""
        same = (candidate.microbatch_size, candidate.num_devices)
        return tuple(c for c in self.candidates if (c.microbatch_size, c.num_devices) == same)

    def _dominates(self, one: Candidate, other: Candidate) -> bool:
        if (one.microbatch_size, one.num_devices) != (other.microbatch_size, other.num_devices):
            return False
        return all(self.in_flight(one, s) <= self.in_flight(other, s) for s in range(one.num_devices))

    @cached_property
    def by_size(self) -> dict[int, tuple[Candidate, ...]]:
        """The candidates of each micro-batch size."""
        sizes = dict.fromkeys(candidate.microbatch_size for candidate in self.candidates)
        return {size: tuple(c for c in self.candidates if c.microbatch_size == size) for size in sizes}

    def num_microbatches(self, size: int) -> int:
        """Micro-batches of that size in a mini-batch."""
        return self.request.batch_size // size

    @cached_property
    def most_terms(self) -> int:
        """Durations that add up to the load of one stage, at most."""
        routes = 2 if self.request.cluster.skip_tensors == "relay" else 2 * self.most_stages
        return len(self.graph.layers) + routes * (len(self.crossings) + 1)

    @cached_property
    def first_or_last(self) -> tuple[tuple[int, Literal["first", "last"]], ...]:
        """Positions that are pinned to the first or the last stage."""
        pins = self.request.profile.pins
        return tuple((self.position[pin.layer], pin.stage) for pin in pins if pin.stage is not None)

    @cached_property
    def on_device(self) -> tuple[tuple[int, int], ...]:
        """Positions that are pinned to a device, with the position of that."""
        places = {device.id: p for p, device in enumerate(self.request.cluster.devices)}
        pins = self.request.profile.pins
        return tuple((self.position[pin.layer], places[pin.device]) for pin in pins if pin.device is not None)

    @cached_property
    def position(self) -> dict[str, int]:
        """The position of each layer id."""
        layers = self.request.profile.layers
        return {layers[index].id: p for p, index in enumerate(self.graph.layers)}

    @cached_property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """Every position once, with those that must be in the same stage; groups that share a layer are one."""
        merged = {position: {position} for position in range(len(self.graph.layers))}
        for group in self.request.profile.groups:
            whole = set().union(*(merged[self.position[name]] for name in group))
            merged |= dict.fromkeys(whole, whole)
        return tuple(tuple(sorted(whole)) for first, whole in merged.items() if first == min(whole))

    @cached_property
    def reach(self) -> Mask | None:
        """[layers, layers] whether the second comes behind the first; None for very many layers."""
        count = len(self.graph.layers)
        if count > MAX_REACH:
            return None
        behind = np.zeros((count, count), dtype=np.bool_)
        for source, target in reversed(self.precedence):
            behind[source] |= behind[target]
            behind[source, target] = True
        return behind

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """The tensors that have bytes."""
        return tuple(self._crossings())

    def _crossings(self) -> Iterator[Crossing]:
        reach = self.reach
        for number, tensor in enumerate(self.graph.tensors):
            if not tensor.bytes_per_sample:
                continue
            readers = np.array(tensor.consumers)
            last = readers if reach is None else readers[~reach[np.ix_(readers, readers)].any(axis=1)]
            yield Crossing(number, tensor.source, tensor.consumers, tuple(map(int, last)))
