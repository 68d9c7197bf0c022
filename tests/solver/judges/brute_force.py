"""Every plan that a request allows, one by one: its step time, its bottleneck and its bytes.

It reads the documents of the problem and does its own arithmetic: no cuts, costs, schedules, bounds or simulator of
the planner. Slow and plain: partitions are all ways to give each layer a stage no earlier than what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import inf

from bapipe.problem import Device, DeviceKind, Layer, LayerTime, Link, PlanRequest
from judges.replay import Op, order

PIPELINES = ("1f1b", "1f1b-so", "gpipe")
MAX_PLANS = 2000
"""At most so many plans are tried for one request."""
Stages = tuple[frozenset[str], ...]

RELATIVE = 1e-9
"""Objectives closer than this are equal."""


@dataclass(frozen=True)
class Option:
    """A plan on the first devices of the cluster; `replicas` above 1: data parallelism.

    `bottleneck_s` is of one micro-batch under the request's communication mode; `peak_bytes` of each device in use,
    reserve included.
    """

    schedule: str
    num_microbatches: int
    stages: Stages
    replicas: int
    step_time_s: float
    bottleneck_s: float
    peak_bytes: tuple[float, ...]

    @property
    def num_devices(self) -> int:
        return self.replicas * len(self.stages)

    def fits(self, request: PlanRequest) -> bool:
        """Whether every device in use has the bytes."""
        return all(
            peak <= limit_bytes(request, device)
            for peak, device in zip(self.peak_bytes, request.cluster.devices, strict=False)
        )

    def objective_s(self, request: PlanRequest) -> float:
        """Seconds of a mini-batch under the request's objective."""
        if request.objective == "bottleneck":
            return self.bottleneck_s * self.num_microbatches
        return self.step_time_s


def limit_bytes(request: PlanRequest, device: Device) -> float:
    """The bytes of a device; infinity: no limit."""
    own = device.memory_bytes if device.memory_bytes is not None else _kind(request).memory_bytes
    return inf if own is None else own


def every_plan(request: PlanRequest) -> list[Option]:
    """All plans, whether they fit or not."""
    available = len(request.cluster.devices)
    counts = range(1, available + 1) if request.idle_devices else [available]
    return [
        option
        for size in microbatch_sizes(request)
        for count in counts
        for option in (*_pipelines(request, size, count), *_data_parallel(request, size, count))
    ]


def best_options(request: PlanRequest, options: list[Option]) -> list[Option]:
    """Those of the options that are as good as any."""
    least = min(option.objective_s(request) for option in options)
    return [option for option in options if option.objective_s(request) <= least * (1 + RELATIVE)]


def num_plans(request: PlanRequest) -> int:
    """About how many plans `every_plan` has."""
    available = len(request.cluster.devices)
    counts = range(1, available + 1) if request.idle_devices else [available]
    schedules = len(_schedules(request))
    return len(microbatch_sizes(request)) * schedules * sum(len(partitions(request, count)) for count in counts)


def microbatch_sizes(request: PlanRequest) -> list[int]:
    """The micro-batch sizes that the request allows."""
    batch = request.batch_size
    if request.microbatch_sizes is not None:
        return sorted(set(request.microbatch_sizes))
    if request.microbatch_counts is not None:
        return sorted({batch // count for count in request.microbatch_counts})
    if request.objective == "bottleneck":
        return [batch]
    return [size for size in range(1, batch + 1) if batch % size == 0]


def partitions(request: PlanRequest, num_stages: int) -> list[Stages]:
    """Every split of the layers into so many stages that the edges, groups, pins and kind of cuts allow."""
    if num_stages > (request.max_stages or num_stages):
        return []
    possible = _segments if request.cuts == "topological-order" else _monotone
    return [stages for stages in possible(request, num_stages) if _allowed(request, stages)]


def topological_order(request: PlanRequest) -> list[Layer]:
    """The layer with the smallest index first of those whose sources are all placed."""
    needs = _sources(request)
    placed: list[Layer] = []
    left = list(request.profile.layers)
    while left:
        done = {layer.id for layer in placed}
        following = next(layer for layer in left if needs[layer.id] <= done)
        placed.append(following)
        left.remove(following)
    return placed


def finish_s(
    forward_s: Sequence[float], backward_s: Sequence[float], send_s: Sequence[float], orders: Sequence[Sequence[Op]]
) -> list[float]:
    """When each stage ends its last operation; links are taken first come, first served."""
    last = len(orders) - 1
    arrived: dict[tuple[int, str, int], float] = {(0, "F", k): 0.0 for kind, k in orders[0] if kind == "F"}
    free, places = [0.0] * (last + 1), [0] * (last + 1)
    link_free = {"F": [0.0] * (last + 1), "B": [0.0] * (last + 1)}
    while any(place < len(mine) for place, mine in zip(places, orders, strict=True)):
        for s, mine in enumerate(orders):
            while places[s] < len(mine) and (s, *mine[places[s]]) in arrived:
                kind, k = mine[places[s]]
                places[s] += 1
                free[s] = max(free[s], arrived[s, kind, k]) + (forward_s if kind == "F" else backward_s)[s]
                if kind == "F" and s == last:
                    arrived[s, "B", k] = free[s]
                target = s + 1 if kind == "F" else s - 1
                if 0 <= target <= last:
                    sent = max(link_free[kind][s], free[s]) + send_s[min(s, target)]
                    link_free[kind][s] = sent
                    arrived[target, kind, k] = sent
    return free


def _schedules(request: PlanRequest) -> list[str]:
    allowed = request.schedules or (*PIPELINES, "data-parallel")
    return [name for name in allowed if request.objective == "step-time" or name != "data-parallel"]


def _kind(request: PlanRequest) -> DeviceKind:
    return next(kind for kind in request.cluster.kinds if kind.name == request.cluster.devices[0].kind)


def _edges(request: PlanRequest) -> list[tuple[str, str]]:
    if request.profile.edges is None:
        return list(pairwise(layer.id for layer in request.profile.layers))
    return [(edge.source, edge.target) for edge in request.profile.edges]


def _sources(request: PlanRequest) -> dict[str, set[str]]:
    needs: dict[str, set[str]] = {layer.id: set() for layer in request.profile.layers}
    for source, target in _edges(request):
        needs[target].add(source)
    return needs


def _monotone(request: PlanRequest, num_stages: int) -> Iterator[Stages]:
    layers = [layer.id for layer in topological_order(request)]
    needs = _sources(request)

    def extend(stage_of: dict[str, int]) -> Iterator[dict[str, int]]:
        if len(stage_of) == len(layers):
            if len(set(stage_of.values())) == num_stages:
                yield stage_of
            return
        layer = layers[len(stage_of)]
        earliest = max((stage_of[source] for source in needs[layer]), default=0)
        for stage in range(earliest, num_stages):
            yield from extend({**stage_of, layer: stage})

    for stage_of in extend({}):
        yield tuple(frozenset(x for x in layers if stage_of[x] == s) for s in range(num_stages))


def _segments(request: PlanRequest, num_stages: int) -> Iterator[Stages]:
    layers = [layer.id for layer in topological_order(request)]
    for inner in combinations(range(1, len(layers)), num_stages - 1):
        yield tuple(frozenset(layers[a:b]) for a, b in pairwise((0, *inner, len(layers))))


def _allowed(request: PlanRequest, stages: Stages) -> bool:
    whole = all(any(set(group) <= stage for stage in stages) for group in request.profile.groups)
    pinned = all(pin.layer in stages[0 if pin.stage == "first" else -1] for pin in request.profile.pins if pin.stage)
    return whole and pinned


def _seconds(request: PlanRequest, layer: Layer, size: int) -> tuple[float, float]:
    """(forward, backward) of a layer for one micro-batch on a device of the cluster."""
    kind, speed = _kind(request), request.cluster.devices[0].speed
    own = [time for time in layer.times if time.device_kind == kind.name]
    points = own or [time for time in layer.times if time.device_kind == "reference"]
    forward = _at(points, [time.forward_s for time in points], size, kind.launch_overhead_s)
    backward = _at(points, [time.backward_s for time in points], size, kind.launch_overhead_s)
    return forward / speed, backward / speed if request.task == "training" else 0.0


def _at(points: list[LayerTime], seconds: list[float], size: int, overhead_s: float) -> float:
    known = sorted(zip((point.microbatch_size for point in points), seconds, strict=True))
    if not known:
        return 0.0
    if len(known) == 1:
        (base, measured), fixed = known[0], min(overhead_s, seconds[0])
        return fixed + (measured - fixed) * size / base
    segments = list(pairwise(known))
    (b0, t0), (b1, t1) = next((pair for pair in segments if size <= pair[1][0]), segments[-1])
    return max(0.0, t0 + (t1 - t0) * (size - b0) / (b1 - b0))


def _tensors(request: PlanRequest) -> list[tuple[str, set[str], float]]:
    """(who wrote it, who reads it, bytes a sample) of every tensor."""
    outputs = {layer.id: layer.output_bytes_per_sample for layer in request.profile.layers}
    if request.profile.edges is None:
        return [(source, {target}, outputs[source]) for source, target in _edges(request)]
    found: dict[tuple[str, str], tuple[set[str], float]] = {}
    for number, edge in enumerate(request.profile.edges):
        own = edge.bytes_per_sample is not None
        name = f"named {edge.tensor}" if edge.tensor is not None else f"number {number}" if own else "output"
        size = edge.bytes_per_sample if edge.bytes_per_sample is not None else outputs[edge.source]
        readers = found.setdefault((edge.source, name), (set(), size))[0]
        readers.add(edge.target)
    return [(source, readers, size) for (source, _), (readers, size) in found.items()]


def _link(request: PlanRequest, a: Device, b: Device) -> Link:
    links = request.cluster.links
    for pair in links.pairs:
        if set(pair.devices) == {a.id, b.id}:
            return pair.link
    return links.within_host if a.host == b.host or links.between_hosts is None else links.between_hosts


def _send_s(link: Link, size: float) -> float:
    return link.latency_s + size / (link.bandwidth_bytes_per_s or float("inf")) if size else 0.0


@dataclass(frozen=True)
class _Layers:
    """What the layers cost at one micro-batch size."""

    request: PlanRequest
    size: int
    forward_s: dict[str, float]
    backward_s: dict[str, float]
    static_bytes: dict[str, float]
    stash_bytes: dict[str, float]
    moved_bytes: dict[str, float]
    workspace_bytes: dict[str, int]
    tensors: list[tuple[str, set[str], float]]

    def crossing_bytes(self, stages: Stages) -> list[float]:
        """Bytes of a micro-batch over each boundary."""
        result = []
        for s in range(1, len(stages)):
            front = frozenset().union(*stages[:s])
            result.append(sum(b for source, readers, b in self.tensors if source in front and readers - front))
        return [size * self.size for size in result]

    def peak_bytes(self, stage: frozenset[str], live: int, count: int, received: float, sent: float) -> float:
        """Most bytes on a device with `live` micro-batches of `count` in flight, reserve included."""
        request = self.request
        training = request.task == "training"
        total = _kind(request).reserved_bytes + max(self.workspace_bytes[layer] for layer in stage)
        total += sum(self.static_bytes[layer] + live * self.stash_bytes[layer] for layer in stage)
        everything = request.cluster.receive_buffers == "all"
        activations = count if everything else min(count, live + 1)
        others = count if everything else min(count, 2)
        return total + activations * received + others * sent + (others * (received + sent) if training else 0)

    def update_s(self, stage: frozenset[str]) -> float:
        """Seconds of the optimizer step."""
        rate = _kind(self.request).memory_bandwidth_bytes_per_s
        return sum(self.moved_bytes[layer] for layer in stage) / rate if rate else 0.0


def _gradient_bytes(layer: Layer) -> int:
    return layer.parameter_bytes if layer.gradient_bytes is None else layer.gradient_bytes


def _layers(request: PlanRequest, size: int) -> _Layers:
    seconds = {layer.id: _seconds(request, layer, size) for layer in request.profile.layers}
    training = request.task == "training"
    static: dict[str, float] = {}
    stash: dict[str, float] = {}
    moved: dict[str, float] = {}
    for layer in request.profile.layers:
        state = layer.parameter_bytes / request.profile.bytes_per_parameter * request.optimizer_bytes_per_parameter
        kept = layer.output_bytes_per_sample if layer.stash_bytes_per_sample is None else layer.stash_bytes_per_sample
        weights = layer.parameter_bytes + layer.master_weight_bytes + state
        static[layer.id] = weights + _gradient_bytes(layer) if training else layer.parameter_bytes
        stash[layer.id] = kept * size if training else 0.0
        moved[layer.id] = 2 * weights + _gradient_bytes(layer) if training else 0.0
    return _Layers(
        request,
        size,
        {name: forward for name, (forward, _) in seconds.items()},
        {name: backward for name, (_, backward) in seconds.items()},
        static,
        stash,
        moved,
        {layer.id: layer.workspace_bytes for layer in request.profile.layers},
        _tensors(request),
    )


def _pipelines(request: PlanRequest, size: int, num_stages: int) -> Iterator[Option]:
    layers, count = _layers(request, size), request.batch_size // size
    names = [name for name in _schedules(request) if name in PIPELINES]
    for stages in partitions(request, num_stages):
        yield from (_pipeline(layers, stages, name, count) for name in names)


def _pipeline(layers: _Layers, stages: Stages, name: str, count: int) -> Option:
    request, devices = layers.request, layers.request.cluster.devices
    training = request.task == "training"
    forward = [sum(layers.forward_s[layer] for layer in stage) for stage in stages]
    backward = [sum(layers.backward_s[layer] for layer in stage) for stage in stages]
    crossing = layers.crossing_bytes(stages)
    send = [_send_s(_link(request, devices[s], devices[s + 1]), size) for s, size in enumerate(crossing)]
    orders = [_order(name, s, len(stages), count, training) for s in range(len(stages))]
    ends = finish_s(forward, backward, send, orders)
    live = [_most_live(mine, training) for mine in orders]
    outer, waits = [0.0, *crossing, 0.0], [0.0, *send, 0.0]
    directions = 2 if training else 1
    return Option(
        schedule=name,
        num_microbatches=count,
        stages=stages,
        replicas=1,
        step_time_s=max(end + layers.update_s(stage) for end, stage in zip(ends, stages, strict=True)),
        bottleneck_s=max(
            _load_s(request, forward[s] + backward[s], directions * (waits[s] + waits[s + 1]))
            for s in range(len(stages))
        ),
        peak_bytes=tuple(
            layers.peak_bytes(stage, live[s], count, outer[s], outer[s + 1]) for s, stage in enumerate(stages)
        ),
    )


def _load_s(request: PlanRequest, compute_s: float, exchange_s: float) -> float:
    if request.communication == "none":
        return compute_s
    return max(compute_s, exchange_s) if request.communication == "overlap" else compute_s + exchange_s


@cache
def _order(name: str, stage: int, num_stages: int, count: int, training: bool) -> tuple[Op, ...]:
    return tuple(order(name, stage, num_stages, count, training=training))


def _most_live(mine: Sequence[Op], training: bool) -> int:
    live = most = 0
    for kind, _ in mine:
        live += 1 if kind == "F" else -1
        most = max(most, live)
    return most if training else min(1, len(mine))


def _data_parallel(request: PlanRequest, size: int, replicas: int) -> Iterator[Option]:
    count = request.batch_size // size
    allowed = "data-parallel" in _schedules(request) and replicas <= (request.max_replication or replicas)
    if not allowed or not 1 < replicas <= count:
        return
    layers = _layers(request, size)
    everything = frozenset(layer.id for layer in request.profile.layers)
    forward, backward = sum(layers.forward_s.values()), sum(layers.backward_s.values())
    shares = [len(range(r, count, replicas)) for r in range(replicas)]
    ends = [share * (forward + backward) for share in shares]
    reduced = _reduced_s(request, layers, ends, replicas) if request.task == "training" else 0.0
    yield Option(
        schedule="data-parallel",
        num_microbatches=count,
        stages=(everything,),
        replicas=replicas,
        step_time_s=max(*ends, reduced) + layers.update_s(everything),
        bottleneck_s=_load_s(request, (forward + backward) / replicas, 0.0),
        peak_bytes=tuple(layers.peak_bytes(everything, 1, share, 0.0, 0.0) for share in shares),
    )


def _reduced_s(request: PlanRequest, layers: _Layers, ends: list[float], replicas: int) -> float:
    """When the last bucket of gradients is summed; buckets fill from the last layer back and follow each other."""
    in_order = topological_order(request)
    ring_free = held = before_end = 0.0
    for number in range(len(in_order) - 1, -1, -1):
        gradients = _gradient_bytes(in_order[number])
        held += gradients
        if gradients:
            before_end = sum(layers.backward_s[layer.id] for layer in in_order[:number])
        if held >= request.gradient_bucket_bytes or (held and number == 0):
            ring_free = max(ring_free, max(ends) - before_end) + _ring_s(request, held, replicas)
            held = 0.0
    return ring_free


def _ring_s(request: PlanRequest, size: float, replicas: int) -> float:
    """2(r - 1) rounds, in each of which every device passes one of r parts on; the slowest link sets the pace."""
    ring = request.cluster.devices[:replicas]
    links = [_link(request, a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]
    return 2 * (replicas - 1) * max(_send_s(link, size / replicas) for link in links)
