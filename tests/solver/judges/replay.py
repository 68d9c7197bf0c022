"""An independent judge of plans: times by fixed-point iteration, bytes by walking the orders.

It shares no code with the simulator, the schedules or the cost functions: it reads the request's documents and does
its own arithmetic. Slow and plain. Layers have one measured time, at micro-batch size 1, of the device's kind; links
are overlapped or free, at the level of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bapipe.problem import Layer, PlanRequest

Op = tuple[str, int]
"""Kind (F or B) and micro-batch."""


@dataclass(frozen=True)
class Verdict:
    """`starts[device number][operation]` in seconds; peak bytes and in-flight counts by device number."""

    step_time_s: float
    starts: list[dict[Op, float]]
    in_flight: list[int]
    peak_bytes: list[float]


def order(name: str, stage: int, num_stages: int, num_microbatches: int, *, training: bool = True) -> list[Op]:
    """An order by its rule: never more than K in flight, a forward whenever that allows one."""
    if not training:
        return [("F", k) for k in range(num_microbatches)]
    behind = num_stages - stage - 1
    most = {"gpipe": num_microbatches, "1f1b": behind + 1, "1f1b-so": 2 * behind + 1}[name]
    forwards = backwards = 0
    result: list[Op] = []
    while backwards < num_microbatches:
        if forwards < num_microbatches and forwards - backwards < most:
            result.append(("F", forwards))
            forwards += 1
        else:
            result.append(("B", backwards))
            backwards += 1
    return result


def pipeline_starts(
    forward_s: Sequence[float], backward_s: Sequence[float], send_s: Sequence[float], orders: Sequence[Sequence[Op]]
) -> list[dict[Op, float]]:
    """The least start times that satisfy every rule, found by raising them until none is broken.

    `send_s[s]`: one transfer between stages s and s + 1, either way. Raises ValueError when there are none.
    """
    starts = [dict.fromkeys(order, 0.0) for order in orders]
    for _ in range(sum(len(order) for order in orders) + 2):
        before = [dict(times) for times in starts]
        for stage in [*range(len(orders)), *reversed(range(len(orders)))]:
            _raise(stage, starts, forward_s, backward_s, send_s, orders)
        if before == starts:
            return starts
    raise ValueError("no start times satisfy the orders")


def _raise(
    stage: int,
    starts: list[dict[Op, float]],
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    send_s: Sequence[float],
    orders: Sequence[Sequence[Op]],
) -> None:
    arrivals: dict[Op, float] = {}
    if stage > 0:
        arrivals |= _arrivals("F", starts[stage - 1], forward_s[stage - 1], send_s[stage - 1])
    if stage < len(orders) - 1:
        arrivals |= _arrivals("B", starts[stage + 1], backward_s[stage + 1], send_s[stage])
    else:
        arrivals |= {("B", k): t + forward_s[stage] for (kind, k), t in starts[stage].items() if kind == "F"}
    free = 0.0
    for op in orders[stage]:
        starts[stage][op] = max(free, arrivals.get(op, 0.0))
        free = starts[stage][op] + (forward_s if op[0] == "F" else backward_s)[stage]


def _arrivals(kind: str, starts: dict[Op, float], seconds: float, send_s: float) -> dict[Op, float]:
    """First come, first served over one direction of a link."""
    ready = sorted((t + seconds, op) for op, t in starts.items() if op[0] == kind)
    free, result = 0.0, {}
    for made, op in ready:
        free = max(free, made) + send_s if send_s else made
        result[op] = free
    return result


def judge(
    request: PlanRequest,
    stages: Sequence[Sequence[str]],
    name: str,
    num_microbatches: int,
    *,
    replicas: int = 1,
    all_reduce: str = "overlapped",
) -> Verdict:
    """`stages` (layer ids) on the cluster's first devices; for data parallelism one stage on `replicas` of them."""
    if name == "data-parallel":
        return _judge_replicas(request, stages[0], num_microbatches, replicas, all_reduce)
    training = request.task == "training"
    size = request.batch_size // num_microbatches
    layers = {layer.id: layer for layer in request.profile.layers}
    parts = [[layers[layer] for layer in stage] for stage in stages]
    forward = [sum(t.forward_s for x in part for t in x.times) * size for part in parts]
    backward = [sum(t.backward_s for x in part for t in x.times) * size for part in parts]
    cuts = [_crossing(request, stages[: s + 1]) * size for s in range(len(stages) - 1)]
    orders = [order(name, s, len(stages), num_microbatches, training=training) for s in range(len(stages))]
    starts = pipeline_starts(forward, backward, [_send_s(request, cut) for cut in cuts], orders)
    ends = [
        max(t + (forward if op[0] == "F" else backward)[s] for op, t in starts[s].items())
        + _update_s(request, parts[s])
        for s in range(len(stages))
    ]
    live = [_most_live(o, training) for o in orders]
    padded = [0.0, *cuts, 0.0]
    peaks = [
        _bytes(request, parts[s], live[s], num_microbatches, size, padded[s], padded[s + 1]) for s in range(len(stages))
    ]
    return Verdict(max(ends), starts, live, peaks)


def _judge_replicas(
    request: PlanRequest, stage: Sequence[str], num_microbatches: int, replicas: int, all_reduce: str
) -> Verdict:
    """Each replica runs its own micro-batches back to back; then the buckets follow each other on the ring."""
    size = request.batch_size // num_microbatches
    part = [layer for layer in request.profile.layers if layer.id in set(stage)]
    starts: list[dict[Op, float]] = []
    for r in range(replicas):
        now, mine = 0.0, {}
        for k in (k for k in range(num_microbatches) if k % replicas == r):
            for kind in ("F", "B"):
                mine[kind, k] = now
                now += sum(t.forward_s if kind == "F" else t.backward_s for x in part for t in x.times) * size
        starts.append(mine)
    per_layer = [sum(t.backward_s for t in layer.times) * size for layer in part]
    finished = [max((t for t in mine.values()), default=0.0) + (sum(per_layer) if mine else 0.0) for mine in starts]
    ring_free = 0.0
    for held, completed in _buckets(request, part) if replicas > 1 else []:
        left = sum(per_layer[:completed])
        ready = max(
            f - (left if all_reduce == "overlapped" and m else 0.0) for f, m in zip(finished, starts, strict=True)
        )
        ring_free = max(ring_free, ready) + _ring_s(request, held, replicas)
    step = max(max(finished), ring_free) + _update_s(request, part)
    share = [len(mine) // 2 for mine in starts]
    peaks = [_bytes(request, part, min(1, n), n, size, 0.0, 0.0) for n in share]
    return Verdict(step, starts, [min(1, n) for n in share], peaks)


def _buckets(request: PlanRequest, part: list[Layer]) -> list[tuple[float, int]]:
    """(bytes, number of the layer whose backward completes the bucket), from the last layer back."""
    result, held = [], []
    for number in range(len(part) - 1, -1, -1):
        if _gradient(part[number]):
            held.append((_gradient(part[number]), number))
        if sum(size for size, _ in held) >= request.gradient_bucket_bytes:
            result.append((float(sum(size for size, _ in held)), held[-1][1]))
            held = []
    return [*result, (float(sum(size for size, _ in held)), held[-1][1])] if held else result


def _ring_s(request: PlanRequest, size: float, replicas: int) -> float:
    link = request.cluster.links.within_host
    rate = link.bandwidth_bytes_per_s or float("inf")
    return 2 * (replicas - 1) / replicas * size / rate + 2 * (replicas - 1) * link.latency_s


def _send_s(request: PlanRequest, size: float) -> float:
    link = request.cluster.links.within_host
    return link.latency_s + size / (link.bandwidth_bytes_per_s or float("inf")) if size else 0.0


def _crossing(request: PlanRequest, front: Sequence[Sequence[str]]) -> float:
    """Bytes per sample made in `front` and read behind it; each layer's output once."""
    inside = {layer for stage in front for layer in stage}
    ids = [layer.id for layer in request.profile.layers]
    given = request.profile.edges
    edges = list(pairwise(ids)) if given is None else [(edge.source, edge.target) for edge in given]
    sources = {source for source, target in edges if source in inside and target not in inside}
    return sum(layer.output_bytes_per_sample for layer in request.profile.layers if layer.id in sources)


def _gradient(layer: Layer) -> int:
    return layer.parameter_bytes if layer.gradient_bytes is None else layer.gradient_bytes


def _state(request: PlanRequest, layer: Layer) -> float:
    return layer.parameter_bytes / request.profile.bytes_per_parameter * request.optimizer_bytes_per_parameter


def _update_s(request: PlanRequest, part: list[Layer]) -> float:
    rate = request.cluster.kinds[0].memory_bandwidth_bytes_per_s
    if rate is None or request.task == "inference":
        return 0.0
    moved = 0.0
    for layer in part:
        moved += 2 * (layer.parameter_bytes + layer.master_weight_bytes + _state(request, layer)) + _gradient(layer)
    return moved / rate


def _most_live(order: Sequence[Op], training: bool) -> int:
    live: set[int] = set()
    most = 0
    for kind, k in order:
        if kind == "F":
            live.add(k)
            most = max(most, len(live))
        if kind == "B" or not training:
            live.discard(k)
    return most


def _bytes(
    request: PlanRequest, part: list[Layer], live: int, count: int, size: int, received: float, sent: float
) -> float:
    training = request.task == "training"
    total = float(request.cluster.kinds[0].reserved_bytes)
    for layer in part:
        total += layer.parameter_bytes
        if training:
            stash = layer.stash_bytes_per_sample
            total += _gradient(layer) + layer.master_weight_bytes + _state(request, layer)
            total += live * size * (layer.output_bytes_per_sample if stash is None else stash)
    everything = request.cluster.receive_buffers == "all"
    first, others = (count, count) if everything else (min(count, live + 1), min(count, 2))
    total += first * received + others * sent + (others * (received + sent) if training else 0)
    return total + max(layer.workspace_bytes for layer in part)
