"""Random plans of every kind that can be simulated, from a seed. Times are dyadic, so that ties are ties."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

from bapipe.plan import Plan, Schedule
from bapipe.problem import (
    Cluster,
    Device,
    DeviceKind,
    Edge,
    Layer,
    LayerTime,
    Link,
    Links,
    ModelProfile,
    PairLink,
    PlanRequest,
    TiedParameters,
)
from judges.instances import bare_plan

FEATURES = (
    "mixed devices",
    "links by level",
    "full matrix",
    "shared card",
    "several stages a device",
    "replicated stages",
    "split backward",
    "recomputation inside the backward",
    "recomputation apart",
    "skip tensors relayed",
    "skip tensors direct",
    "tied parameters",
    "all receive buffers",
    "inference",
    "fused exchange",
    "ordered exchange",
    "streaming",
    "two engines a device",
    "no flush",
)
ONE_ENGINE = (
    *("several stages a device", "split backward", "recomputation inside the backward", "recomputation apart"),
    *("inference", "fused exchange", "ordered exchange"),
)
"""What a device that runs forwards and backwards side by side cannot do."""

EXCLUDED = (
    ("no flush", (*ONE_ENGINE[:2], *ONE_ENGINE[3:5], "replicated stages", "tied parameters", "two engines a device")),
    ("two engines a device", ONE_ENGINE),
    ("inference", (*ONE_ENGINE[1:4], "tied parameters")),
    ("skip tensors direct", ("skip tensors relayed",)),
    ("recomputation apart", ("recomputation inside the backward",)),
)
"""Which features exclude which others."""

KINDS = ("one", "two")


def random_plan(seed: int) -> tuple[Plan, set[str]]:
    """A plan without figures, and which of `FEATURES` it has. Each feature is wanted by one seed in so many."""
    random = Random(seed)
    wanted = _wanted(random, FEATURES[seed % len(FEATURES)])
    layers = [_layer(random, number, wanted) for number in range(random.randint(3, 7))]
    cluster = _cluster(random, wanted)
    stages, placed = _placement(random, len(layers), [device.id for device in cluster.devices], wanted)
    edges = _edges(random, len(layers), wanted)
    m = random.choice((1, 2, 3, 4, 5, 6))
    size = random.choice((1, 1, 2))
    profile = ModelProfile(
        name="random", layers=tuple(layers), edges=edges, tied_parameters=_tied(random, layers, wanted)
    )
    request = PlanRequest(
        profile=profile,
        cluster=cluster,
        batch_size=m * size,
        task="inference" if "inference" in wanted else "training",
        gradient_bucket_bytes=random.choice((1, 500, 10**6)),
        recomputation="allowed",
        optimizer_bytes_per_parameter=random.choice((0, 4, 8)),
    )
    again = [_recomputed(random, mine, wanted) for mine in stages]
    orders = _orders(random, request, stages, placed, again, m, wanted)
    versions = None
    if "no flush" in wanted:
        versions, orders = _endless(random, cluster, placed, m)
    schedule = Schedule(
        name="custom",
        num_microbatches=m,
        microbatch_size=size,
        all_reduce=random.choice(("overlapped", "blocking")),
        weight_versions=versions,
        orders=orders,
    )
    plan = bare_plan(request, stages, placed, schedule, again)
    if "two engines a device" in wanted:
        shared = [
            stage.model_copy(update={"forward_share": random.choice((0.5, 0.5, 0.5, 0.25))})
            if random.random() < 0.8
            else stage
            for stage in plan.stages
        ]
        plan = plan.model_copy(update={"stages": tuple(shared)})
    return plan, _features(plan)


def _wanted(random: Random, first: str) -> set[str]:
    """One feature for sure, and others that go with it."""
    wanted = {first} | {feature for feature in FEATURES if random.random() < 0.2}
    for one, others in EXCLUDED:
        if first == one:
            wanted -= set(others)
        elif one in wanted and first in others:
            wanted.discard(one)
        elif one in wanted:
            wanted -= set(others)
    return wanted


def _features(plan: Plan) -> set[str]:
    """What a plan really has, whatever was wanted."""
    request, cluster = plan.request, plan.request.cluster
    used = [device for device in cluster.devices if any(device.id in stage.devices for stage in plan.stages)]
    seats = [device for stage in plan.stages for device in stage.devices]
    kinds = {name.strip("0123456789") for order in plan.schedule.orders for name in order}  # type: ignore[union-attr]
    stage_of = {name: s for s, stage in enumerate(plan.stages) for name in stage.layers}
    edges = request.profile.edges or ()
    skips = any(stage_of[edge.target] > stage_of[edge.source] + 1 for edge in edges)
    modes = {(pair.link.mode, pair.link.exchange) for pair in cluster.links.pairs}
    modes.add((cluster.links.within_host.mode, cluster.links.within_host.exchange))
    hosts = {(device.rack, device.host) for device in used}
    recomputed = any(stage.recomputed_layers for stage in plan.stages)
    tied = [{stage_of[name] for name in each.layers} for each in request.profile.tied_parameters]
    several = len(used) > 1
    has = {
        "mixed devices": len({(device.kind, device.speed) for device in used}) > 1,
        "links by level": len(hosts) > 1,
        "full matrix": len(cluster.links.pairs) > 1 and several,
        "shared card": cluster.host_nic is not None and len(hosts) > 1,
        "several stages a device": len(seats) > len(set(seats)),
        "replicated stages": len(plan.stages) > 1 and any(len(stage.devices) > 1 for stage in plan.stages),
        "split backward": "W" in kinds,
        "recomputation inside the backward": recomputed and "R" not in kinds,
        "recomputation apart": recomputed and "R" in kinds,
        "skip tensors relayed": skips and cluster.skip_tensors == "relay",
        "skip tensors direct": skips and cluster.skip_tensors == "direct",
        "tied parameters": any(len(stages) > 1 for stages in tied),
        "all receive buffers": cluster.receive_buffers == "all",
        "inference": request.task == "inference",
        "fused exchange": ("blocking", "fused") in modes and several,
        "streaming": any(mode == "streaming" for mode, _ in modes) and several,
        "no flush": plan.schedule.weight_versions is not None,  # type: ignore[union-attr]
        "two engines a device": any(stage.forward_share is not None for stage in plan.stages),
        "ordered exchange": ("blocking", "ordered") in modes and several,
    }
    return {feature for feature, present in has.items() if present}


def _dyadic(random: Random) -> float:
    return random.randint(1, 32) / 8


def _layer(random: Random, number: int, wanted: set[str]) -> Layer:
    times = []
    for kind in KINDS:
        inputs, weights = _dyadic(random), _dyadic(random)
        times.append(
            LayerTime(
                device_kind=kind,
                microbatch_size=1,
                forward_s=_dyadic(random),
                backward_s=inputs + weights,
                input_gradient_s=inputs,
                weight_gradient_s=weights,
            )
        )
    return Layer(
        id=f"l{number}",
        times=tuple(times),
        parameter_bytes=240 * random.randint(0, 4),
        gradient_bytes=random.choice((None, None, 480)),
        master_weight_bytes=random.choice((0, 7)),
        output_bytes_per_sample=float(random.choice((0, 1, 2, 4, 6, 8))),
        stash_bytes_per_sample=random.choice((None, 3.0, 16.0)),
        recompute_stash_bytes_per_sample=random.choice((None, 1.0, 2.0)),
        workspace_bytes=random.choice((0, 5, 9)),
        streamable="streaming" in wanted and random.random() < 0.9,
    )


def _link(random: Random, wanted: set[str]) -> Link:
    modes: list[dict[str, Any]] = [{}]
    if wanted & {"fused exchange", "ordered exchange"}:
        modes += [
            {"mode": "blocking", "exchange": each} for each in ("fused", "ordered") if f"{each} exchange" in wanted
        ]
        modes = modes[1:] if random.random() < 0.7 else modes
    if "streaming" in wanted and random.random() < 0.7:
        modes = [{"mode": "streaming", "chunks": random.choice((1, 2, 4, 8))}]
    return Link(
        bandwidth_bytes_per_s=random.choice((None, 2.0, 8.0, 32.0)),
        latency_s=random.choice((0.0, 0.0, 0.125)),
        **random.choice(modes),
    )


def _cluster(random: Random, wanted: set[str]) -> Cluster:
    count = random.randint(2, 4)
    mixed, levels = "mixed devices" in wanted, bool(wanted & {"links by level", "shared card"})
    devices = tuple(
        Device(
            id=f"d{k}",
            kind=random.choice(KINDS) if mixed else "one",
            host=f"h{k % 2 if random.random() < 0.5 else k // 2}" if levels else "h0",
            rack=random.choice(("r0", "r1")) if levels and random.random() < 0.3 else "r0",
            speed=random.choice((0.5, 1.0, 2.0)) if mixed else 1.0,
        )
        for k in range(count)
    )
    pairs = [(a, b) for a in range(count) for b in range(a)] if "full matrix" in wanted else []
    return Cluster(
        kinds=tuple(
            DeviceKind(
                name=name,
                execution=_execution(random, wanted),
                reserved_bytes=random.choice((0, 11)),
                memory_bandwidth_bytes_per_s=random.choice((None, 256.0, 1024.0)),
            )
            for name in KINDS
        ),
        devices=devices,
        links=Links(
            within_host=_link(random, wanted),
            between_hosts=_link(random, wanted),
            between_racks=_link(random, wanted),
            pairs=tuple(PairLink(devices=(f"d{a}", f"d{b}"), link=_link(random, wanted)) for a, b in pairs),
        ),
        host_nic=Link(bandwidth_bytes_per_s=random.choice((2.0, 8.0))) if "shared card" in wanted else None,
        skip_tensors="direct" if "skip tensors direct" in wanted else "relay",
        receive_buffers="all" if "all receive buffers" in wanted else "in_flight",
    )


def _execution(random: Random, wanted: set[str]) -> Literal["sync", "async"]:
    if "two engines a device" in wanted:
        return "async"
    return "async" if "streaming" in wanted and random.random() < 0.9 else "sync"


def _placement(
    random: Random, num_layers: int, devices: list[str], wanted: set[str]
) -> tuple[list[list[str]], list[list[str]]]:
    several = "several stages a device" in wanted
    count = random.randint(2, min(num_layers, len(devices) + 2 if several else len(devices)))
    cuts = [0, *sorted(random.sample(range(1, num_layers), count - 1)), num_layers]
    stages = [[f"l{k}" for k in range(cuts[s], cuts[s + 1])] for s in range(count)]
    if several:
        used = random.sample(devices, random.randint(1, len(devices)))
        placed = [[used[s % len(used)]] for s in range(count)]
    else:
        placed = [[device] for device in random.sample(devices, count)]
    if "replicated stages" in wanted:
        for mine in placed:
            free = [d for d in devices if d not in mine and (several or all(d not in other for other in placed))]
            if free and random.random() < 0.7:
                mine.append(random.choice(free))
    return stages, placed


def _endless(
    random: Random, cluster: Cluster, placed: list[list[str]], m: int
) -> tuple[tuple[int, ...], tuple[tuple[str, ...], ...]]:
    """Weight versions, as many as PipeDream has or more, and the orders that follow from them."""
    versions: list[int] = []
    for _ in placed:
        versions.insert(0, (versions[0] if versions else 0) + random.choice((1, 1, 1, 2) if versions else (1, 1, 2)))
    orders: dict[str, list[str]] = {device.id: [] for device in cluster.devices}
    for s, (device,) in enumerate(placed):
        for k in range(m + versions[s] - 1):
            orders[device] += [f"{s}F{k}"] if k < m else []
            orders[device] += [f"{s}B{k - versions[s] + 1}"] if k >= versions[s] - 1 else []
    return tuple(versions), tuple(map(tuple, orders.values()))


def _edges(random: Random, count: int, wanted: set[str]) -> tuple[Edge, ...] | None:
    pairs = [(k, k + 1) for k in range(count - 1)]
    if wanted & {"skip tensors relayed", "skip tensors direct"}:
        pairs += [(a, b) for a in range(count) for b in range(a + 2, count) if random.random() < 0.4]
    return tuple(Edge(source=f"l{a}", target=f"l{b}") for a, b in sorted(pairs))


def _tied(random: Random, layers: list[Layer], wanted: set[str]) -> tuple[TiedParameters, ...]:
    if "tied parameters" not in wanted:
        return ()
    names = [layer.id for layer in layers]
    ends = (names[0], names[-1])
    more = (
        (TiedParameters(layers=tuple(random.sample(names, 2)), parameter_bytes=240),) if random.random() < 0.3 else ()
    )
    return (TiedParameters(layers=ends, parameter_bytes=480), *more)


def _recomputed(random: Random, layers: list[str], wanted: set[str]) -> tuple[str, ...]:
    if not any(feature.startswith("recomputation") for feature in wanted):
        return ()
    return tuple(name for name in layers if random.random() < 0.7)


def _orders(
    random: Random,
    request: PlanRequest,
    stages: list[list[str]],
    placed: list[list[str]],
    again: list[tuple[str, ...]],
    m: int,
    wanted: set[str],
) -> tuple[tuple[str, ...], ...]:
    """Whatever is ready, at random, but with more of a liking for backwards and early micro-batches."""
    split = [("split backward" in wanted) and random.random() < 0.8 for _ in stages]
    apart = [bool(again[s]) and "recomputation apart" in wanted for s in range(len(stages))]
    training = request.task == "training"
    needs: dict[tuple[int, str, int], set[tuple[int, str, int]]] = {}
    for s in range(len(stages)):
        for k in range(m):
            needs[s, "F", k] = {(s - 1, "F", k)} if s else set()
            if not training:
                continue
            back = "I" if split[s] else "B"
            needs[s, back, k] = {(s, "R" if apart[s] else "F", k)}
            if s + 1 < len(stages):
                needs[s, back, k].add((s + 1, "I" if split[s + 1] else "B", k))
            if apart[s]:
                needs[s, "R", k] = {(s, "F", k)}
            if split[s]:
                needs[s, "W", k] = {(s, "I", k)}
    orders: dict[str, list[str]] = {device.id: [] for device in request.cluster.devices}
    done: set[tuple[int, str, int]] = set()
    while len(done) < len(needs):
        ready = [op for op, before in needs.items() if op not in done and before <= done]
        rank = {"B": 0, "I": 0, "W": 1, "F": 1, "R": 2}
        op = min(ready, key=lambda op: (rank[op[1]] * random.random(), op[2] + random.random() * 2))
        done.add(op)
        s, kind, k = op
        orders[placed[s][k % len(placed[s])]].append(f"{s}{kind}{k}")
    return tuple(map(tuple, orders.values()))
