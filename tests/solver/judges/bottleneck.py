"""Every partition, schedule and micro-batch size that a request for the least bottleneck allows, one by one.

It knows what the brute force of step times leaves out: pins to devices, tied parameters, devices of several kinds and
speeds, tensors sent past a stage. It reads the documents of the problem and does its own arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import inf

from bapipe.problem import Device, DeviceKind, Layer, LayerTime, Link, PlanRequest, TiedParameters
from judges.replay import order

SCHEDULES = ("1f1b", "1f1b-so", "gpipe")
RELATIVE = 1e-9
"""Objectives closer than this are equal."""

Stages = tuple[frozenset[str], ...]
Traffic = dict[tuple[int, int], float]
"""Bytes of one micro-batch from one stage to a later one."""


@dataclass(frozen=True)
class Placement:
    """A plan with one stage on each of the first devices; `peak_bytes` of each, reserve included."""

    schedule: str
    num_microbatches: int
    stages: Stages
    loads_s: tuple[float, ...]
    peak_bytes: tuple[float, ...]

    @property
    def objective_s(self) -> float:
        """Seconds of a mini-batch if every stage were as slow as the slowest."""
        return max(self.loads_s) * self.num_microbatches

    def fits(self, request: PlanRequest) -> bool:
        """Whether every device in use has the bytes."""
        pairs = zip(self.peak_bytes, request.cluster.devices, strict=False)
        return all(peak <= _limit_bytes(request, device) for peak, device in pairs)


def every_placement(request: PlanRequest) -> list[Placement]:
    """All placements, whether they fit or not."""
    names = [name for name in request.schedules or SCHEDULES if name in SCHEDULES]
    return [
        placement
        for size in _sizes(request)
        for stages in every_partition(request)
        for placement in _placements(request, size, stages, names)
    ]


def best_placements(placements: Iterable[Placement]) -> list[Placement]:
    """Those that are as good as any."""
    known = list(placements)
    least = min(placement.objective_s for placement in known)
    return [placement for placement in known if placement.objective_s <= least * (1 + RELATIVE)]


def every_partition(request: PlanRequest) -> list[Stages]:
    """Every split of the layers that the edges, groups, pins, kind of cuts and numbers of stages allow."""
    available = len(request.cluster.devices)
    counts = range(1, available + 1) if request.idle_devices else [available]
    enumerate_all = _segments if request.cuts == "topological-order" else _monotone
    return [
        stages
        for count in counts
        if count <= (request.max_stages or count)
        for stages in enumerate_all(request, count)
        if _allowed(request, stages)
    ]


def _sizes(request: PlanRequest) -> list[int]:
    if request.microbatch_sizes is not None:
        return sorted(set(request.microbatch_sizes))
    if request.microbatch_counts is not None:
        return sorted({request.batch_size // count for count in request.microbatch_counts})
    return [request.batch_size]


def _edges(request: PlanRequest) -> list[tuple[str, str]]:
    if request.profile.edges is None:
        return list(pairwise(layer.id for layer in request.profile.layers))
    return [(edge.source, edge.target) for edge in request.profile.edges]


def _topological_order(request: PlanRequest) -> list[str]:
    """Of the layers whose sources are all placed, the first in the profile comes next."""
    waits: dict[str, set[str]] = {layer.id: set() for layer in request.profile.layers}
    for source, target in _edges(request):
        waits[target].add(source)
    placed: list[str] = []
    while len(placed) < len(waits):
        placed.append(next(name for name, needs in waits.items() if name not in placed and needs <= set(placed)))
    return placed


def _monotone(request: PlanRequest, count: int) -> Iterator[Stages]:
    names = _topological_order(request)
    sources: dict[str, list[int]] = {name: [] for name in names}
    for source, target in _edges(request):
        sources[target].append(names.index(source))

    def extend(chosen: list[int]) -> Iterator[list[int]]:
        if len(chosen) == len(names):
            yield chosen
            return
        earliest = max((chosen[source] for source in sources[names[len(chosen)]]), default=0)
        for stage in range(earliest, count):
            yield from extend([*chosen, stage])

    for chosen in extend([]):
        if len(set(chosen)) == count:
            yield tuple(
                frozenset(name for name, at in zip(names, chosen, strict=True) if at == s) for s in range(count)
            )


def _segments(request: PlanRequest, count: int) -> Iterator[Stages]:
    names = _topological_order(request)
    for inner in combinations(range(1, len(names)), count - 1):
        yield tuple(frozenset(names[a:b]) for a, b in pairwise((0, *inner, len(names))))


def _allowed(request: PlanRequest, stages: Stages) -> bool:
    place = {name: s for s, stage in enumerate(stages) for name in stage}
    if any(len({place[name] for name in group}) > 1 for group in request.profile.groups):
        return False
    places = {device.id: s for s, device in enumerate(request.cluster.devices)}
    ends = {"first": 0, "last": len(stages) - 1}
    wanted = [(pin.layer, places[pin.device] if pin.device else ends[pin.stage or ""]) for pin in request.profile.pins]
    return all(place[layer] == s for layer, s in wanted)


def _placements(request: PlanRequest, size: int, stages: Stages, names: Iterable[str]) -> Iterator[Placement]:
    count = request.batch_size // size
    traffic = _traffic(request, stages, size)
    loads = tuple(_load_s(request, s, stage, traffic, size) for s, stage in enumerate(stages))
    for name in names:
        peaks = (_peak_bytes(request, s, stages, traffic, size, name) for s in range(len(stages)))
        yield Placement(name, count, stages, loads, tuple(peaks))


def _load_s(request: PlanRequest, s: int, stage: frozenset[str], traffic: Traffic, size: int) -> float:
    devices = request.cluster.devices
    compute = sum(_seconds(request, layer, devices[s], size) for layer in _layers(request, stage))
    ways = 2 if request.task == "training" else 1
    exchange = sum(
        ways * _sent_s(_link(request, devices[a], devices[b]), amount)
        for (a, b), amount in traffic.items()
        if s in (a, b)
    )
    if request.communication == "none":
        return compute
    return max(compute, exchange) if request.communication == "overlap" else compute + exchange


def _peak_bytes(request: PlanRequest, s: int, stages: Stages, traffic: Traffic, size: int, schedule: str) -> float:
    """Parameters and all that stays, stashes of those in flight, work space, and buffers for what comes and goes."""
    training, count = request.task == "training", request.batch_size // size
    layers = _layers(request, stages[s])
    live = _most_live(schedule, s, len(stages), count, training)
    total = float(_kind(request, request.cluster.devices[s]).reserved_bytes)
    total += max(layer.workspace_bytes for layer in layers)
    total += sum(_static_bytes(request, layer) for layer in layers)
    total += sum(_copy_bytes(request, tied) for tied in request.profile.tied_parameters if set(tied.layers) & stages[s])
    total += live * size * sum(_stash_bytes(layer) for layer in layers) if training else 0.0
    received = sum(amount for (_, target), amount in traffic.items() if target == s)
    sent = sum(amount for (source, _), amount in traffic.items() if source == s)
    everything = request.cluster.receive_buffers == "all"
    others = count if everything else min(2, count)
    total += (count if everything else min(live + 1, count)) * received + others * sent
    return total + (others * (received + sent) if training else 0.0)


@cache
def _most_live(schedule: str, stage: int, num_stages: int, count: int, training: bool) -> int:
    live = most = 0
    for kind, _ in order(schedule, stage, num_stages, count, training=training):
        live += 1 if kind == "F" else -1
        most = max(most, live)
    return most if training else 1


def _traffic(request: PlanRequest, stages: Stages, size: int) -> Traffic:
    """What one micro-batch sends: a tensor passes every stage on its way, or goes once to each stage that reads it."""
    place = {name: s for s, stage in enumerate(stages) for name in stage}
    traffic: Traffic = defaultdict(float)
    for source, readers, amount in _tensors(request):
        targets = {place[reader] for reader in readers} - {place[source]}
        if request.cluster.skip_tensors == "direct":
            for target in targets:
                traffic[place[source], target] += amount * size
        else:
            for s in range(place[source], max(targets, default=place[source])):
                traffic[s, s + 1] += amount * size
    return traffic


def _tensors(request: PlanRequest) -> list[tuple[str, set[str], float]]:
    """(who wrote it, who reads it, bytes a sample); of edges that share a tensor the largest size counts."""
    outputs = {layer.id: layer.output_bytes_per_sample for layer in request.profile.layers}
    if request.profile.edges is None:
        return [(source, {target}, outputs[source]) for source, target in _edges(request)]
    readers: dict[tuple[str, str], set[str]] = defaultdict(set)
    sizes: dict[tuple[str, str], float] = defaultdict(float)
    for number, edge in enumerate(request.profile.edges):
        unnamed = "the output" if edge.bytes_per_sample is None else f"edge {number}"
        key = edge.source, unnamed if edge.tensor is None else f"tensor {edge.tensor}"
        readers[key].add(edge.target)
        own = edge.bytes_per_sample
        sizes[key] = max(sizes[key], outputs[edge.source] if own is None else own)
    return [(source, readers[source, name], sizes[source, name]) for source, name in readers]


def _layers(request: PlanRequest, names: frozenset[str]) -> list[Layer]:
    return [layer for layer in request.profile.layers if layer.id in names]


def _kind(request: PlanRequest, device: Device) -> DeviceKind:
    return next(kind for kind in request.cluster.kinds if kind.name == device.kind)


def _limit_bytes(request: PlanRequest, device: Device) -> float:
    own = device.memory_bytes if device.memory_bytes is not None else _kind(request, device).memory_bytes
    return inf if own is None else own


def _seconds(request: PlanRequest, layer: Layer, device: Device, size: int) -> float:
    """Forward and, in training, backward of one micro-batch on a device."""
    kind = _kind(request, device)
    points = [time for time in layer.times if time.device_kind == kind.name]
    points = points or [time for time in layer.times if time.device_kind == "reference"]
    total = _at(points, [time.forward_s for time in points], size, kind.launch_overhead_s)
    if request.task == "training":
        total += _at(points, [time.backward_s for time in points], size, kind.launch_overhead_s)
    return total / device.speed


def _at(points: list[LayerTime], seconds: list[float], size: int, overhead_s: float) -> float:
    known = sorted(zip((point.microbatch_size for point in points), seconds, strict=True))
    if not known:
        return 0.0
    if len(known) == 1:
        (base, measured), fixed = known[0], min(overhead_s, seconds[0])
        return fixed + (measured - fixed) * size / base
    (b0, t0), (b1, t1) = next((pair for pair in pairwise(known) if size <= pair[1][0]), known[-2:])
    return max(0.0, t0 + (t1 - t0) * (size - b0) / (b1 - b0))


def _static_bytes(request: PlanRequest, layer: Layer) -> float:
    if request.task == "inference":
        return float(layer.parameter_bytes)
    gradients = layer.parameter_bytes if layer.gradient_bytes is None else layer.gradient_bytes
    return layer.parameter_bytes + gradients + layer.master_weight_bytes + _state_bytes(request, layer.parameter_bytes)


def _copy_bytes(request: PlanRequest, tied: TiedParameters) -> float:
    """One copy of tied parameters; in training with gradient and optimizer state."""
    if request.task == "inference":
        return float(tied.parameter_bytes)
    return 2 * tied.parameter_bytes + _state_bytes(request, tied.parameter_bytes)


def _state_bytes(request: PlanRequest, parameter_bytes: int) -> float:
    return parameter_bytes / request.profile.bytes_per_parameter * request.optimizer_bytes_per_parameter


def _stash_bytes(layer: Layer) -> float:
    return layer.output_bytes_per_sample if layer.stash_bytes_per_sample is None else layer.stash_bytes_per_sample


def _link(request: PlanRequest, a: Device, b: Device) -> Link:
    links = request.cluster.links
    for pair in links.pairs:
        if set(pair.devices) == {a.id, b.id}:
            return pair.link
    return links.within_host if a.host == b.host or links.between_hosts is None else links.between_hosts


def _sent_s(link: Link, size: float) -> float:
    return link.latency_s + size / (link.bandwidth_bytes_per_s or inf) if size else 0.0
