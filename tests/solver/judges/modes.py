"""Every plan over links and devices of any mode, one by one, timed by the independent judge of whole plans.

`MODES` says what a random problem has; `every_plan` lists partitions × schedules × micro-batch sizes × numbers of
devices × shares of split devices, as the documents that the judge reads. Small and slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, inf
from random import Random
from typing import Any

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
    Pin,
    PlanRequest,
    TiedParameters,
)
from judges.brute_force import partitions
from judges.general import Judge
from judges.given_orders import forward_backward
from judges.instances import bare_plan
from judges.replay import order

MODES = (
    *("overlapped", "blocking fused", "blocking ordered", "streaming 1", "streaming 2", "streaming 4", "split devices"),
    *("shared card", "direct skips", "tied parameters", "mixed devices", "mixed links", "pinned devices"),
)
FIXED_SHARES = (0.25, 1 / 3, 0.5)
KINDS = ("one", "two")


@dataclass(frozen=True)
class Option:
    """A plan as its documents, and what the judge says of it."""

    plan: Plan
    step_time_s: float
    peaks: dict[str, float]

    def fits(self, request: PlanRequest) -> bool:
        """Whether every device in use has the bytes."""
        kinds = {kind.name: kind for kind in request.cluster.kinds}
        limits = {
            device.id: device.memory_bytes if device.memory_bytes is not None else kinds[device.kind].memory_bytes
            for device in request.cluster.devices
        }
        return all(peak <= (inf if (limit := limits[device]) is None else limit) for device, peak in self.peaks.items())


def every_plan(request: PlanRequest) -> Iterator[Option]:
    """All that can be executed, whether it fits or not."""
    for plan in documents(request):
        try:
            judged = Judge(plan)
        except ValueError:
            continue
        yield Option(plan, judged.step_time_s, judged.peaks)


def documents(request: PlanRequest) -> Iterator[Plan]:
    """All plans, without figures."""
    devices = [device.id for device in request.cluster.devices]
    for size in request.microbatch_sizes or ():
        m = request.batch_size // size
        for count in range(1, len(devices) + 1) if request.idle_devices else [len(devices)]:
            yield from _pipelines(request, devices[:count], m, size)
            layers = [layer.id for layer in request.profile.layers]
            if (
                "data-parallel" in (request.schedules or ("data-parallel",))
                and 1 < count <= m
                and (_pins_kept(request, [layers] * count, devices[:count]))
            ):
                orders = [[f"0{kind}{k}" for k in range(r, m, count) for kind in _kinds(request)] for r in range(count)]
                yield _plan(request, [layers], [devices[:count]], "data-parallel", m, size, orders)


def _pipelines(request: PlanRequest, devices: list[str], m: int, size: int) -> Iterator[Plan]:
    count, training = len(devices), request.task == "training"
    names = [name for name in allowed(request, count) if name in (request.schedules or names_of_all())]
    splits = [stages for stages in partitions(request, count) if _pins_kept(request, stages, devices)]
    for stages, name in product(splits, names):
        if name == "fbp-as":
            orders = [list(map(str, mine)) for mine in forward_backward(count, m)]
            for shares in product(
                *(_shares(request, stage, device) for stage, device in zip(stages, devices, strict=True))
            ):
                yield _plan(request, stages, [[d] for d in devices], name, m, size, orders, shares)
        else:
            orders = [
                [f"{s}{kind}{k}" for kind, k in order(name, s, count, m, training=training)] for s in range(count)
            ]
            yield _plan(request, stages, [[d] for d in devices], name, m, size, orders)


def names_of_all() -> tuple[str, ...]:
    """The pipelines."""
    return ("1f1b", "1f1b-so", "fbp-as", "gpipe")


def allowed(request: PlanRequest, count: int) -> list[str]:
    """The pipelines that links and devices allow."""
    cluster = request.cluster
    kinds = {kind.name: kind.execution for kind in cluster.kinds}
    names = set(names_of_all())
    for a, b in pairwise(cluster.devices[: max(2, count)]):
        mode = _link(cluster, a, b).mode
        if mode == "streaming" and "sync" in (kinds[a.kind], kinds[b.kind]):
            mode = "overlapped"
        names -= {"blocking": {"1f1b-so", "fbp-as"}, "overlapped": {"fbp-as"}, "streaming": {"1f1b-so"}}[mode]
    blocking = any(
        link and link.mode == "blocking" for link in (cluster.links.within_host, cluster.links.between_hosts)
    )
    if blocking or request.task == "inference" or len(cluster.devices) == 1:
        names -= {"fbp-as"}
    return [name for name in names_of_all() if name in names]


def _link(cluster: Cluster, a: Device, b: Device) -> Link:
    return cluster.links.within_host if a.host == b.host else cluster.links.between_hosts or cluster.links.within_host


def _kinds(request: PlanRequest) -> str:
    return "FB" if request.task == "training" else "F"


def _pins_kept(request: PlanRequest, stages: Any, devices: list[str]) -> bool:
    return all(
        pin.device in devices and pin.layer in stages[devices.index(pin.device)]
        for pin in request.profile.pins
        if pin.device is not None
    )


def _shares(request: PlanRequest, stage: Any, device: str) -> list[float]:
    kind = next(d.kind for d in request.cluster.devices if d.id == device)
    times = [
        next(t for t in layer.times if t.device_kind == kind) for layer in request.profile.layers if layer.id in stage
    ]
    forward, both = sum(t.forward_s for t in times), sum(t.forward_s + t.backward_s for t in times)
    return [forward / both, *FIXED_SHARES]


def _plan(
    request: PlanRequest, stages: Any, placed: Any, name: str, m: int, size: int, orders: Any, shares: Any = None
) -> Plan:
    used = [device for mine in placed for device in mine]
    by_device = dict(zip(used, map(tuple, orders), strict=True))
    schedule = Schedule(
        name=name,  # type: ignore[arg-type]
        num_microbatches=m,
        microbatch_size=size,
        orders=tuple(by_device.get(device.id, ()) for device in request.cluster.devices),
    )
    ids = [layer.id for layer in request.profile.layers]
    plan = bare_plan(request, [[name for name in ids if name in stage] for stage in stages], placed, schedule)
    if shares is None:
        return plan
    split = zip(plan.stages, shares, strict=True)
    return plan.model_copy(
        update={"stages": tuple(stage.model_copy(update={"forward_share": share}) for stage, share in split)}
    )


def random_request(seed: int, mode: str, **fields: Any) -> PlanRequest:
    """A problem small enough to try every plan of; times and sizes are dyadic."""
    random = Random(f"{mode} {seed}")
    many = mode not in ("split devices", "direct skips")
    devices = random.choice((2, 2, 3)) if mode == "split devices" else random.choice((2, 3, 3, 4))
    count = random.randint(devices, devices + (2 if many else 1))
    layers = [_layer(random, k, mode) for k in range(count)]
    m, size = random.choice((1, 2, 3, 4)), random.choice((1, 1, 2))
    batch = m * size
    names = [layer.id for layer in layers]
    pins = (
        (Pin(layer=random.choice(names), device=f"d{random.randrange(devices)}"),) if mode == "pinned devices" else ()
    )
    skipping = mode == "direct skips" or random.random() < 0.3
    tied = TiedParameters(layers=(names[0], names[-1]), parameter_bytes=random.choice((16, 64, 256)))
    profile = ModelProfile(
        name=mode,
        layers=tuple(layers),
        edges=_edges(random, count) if skipping and count > 2 else None,
        tied_parameters=(tied,) if mode == "tied parameters" else (),
        pins=pins,
    )
    return PlanRequest(
        profile=profile,
        cluster=_cluster(random, devices, mode),
        batch_size=batch,
        task="training" if mode in ("split devices", "tied parameters") or random.random() < 0.8 else "inference",
        cuts="topological-order" if random.random() < 0.7 else "any",
        schedules=_schedules(random, mode),
        microbatch_sizes=tuple(sorted({size, batch if random.random() < 0.3 else size})),
        optimizer_bytes_per_parameter=random.choice((0, 8)),
        idle_devices=random.random() < 0.8,
        **fields,
    )


def _schedules(random: Random, mode: str) -> Any:
    if mode == "split devices":
        return random.choice((("fbp-as",), ("fbp-as", "1f1b"), None))
    if "streaming" in mode:  # the shares of split devices are tried under that mode
        return random.choice((("1f1b", "gpipe"), ("1f1b", "gpipe", "data-parallel")))
    return random.choice((None, None, ("1f1b",), ("gpipe",)))


def tight(request: PlanRequest, options: list[Option], seed: int) -> PlanRequest:
    """The request with memory in which some plan fits, where there is any choice."""
    peaks = sorted({ceil(max(option.peaks.values())) for option in options})
    limit = peaks[Random(seed).randrange(len(peaks))]
    kinds = tuple(kind.model_copy(update={"memory_bytes": limit}) for kind in request.cluster.kinds)
    return request.model_copy(update={"cluster": request.cluster.model_copy(update={"kinds": kinds})})


def _layer(random: Random, number: int, mode: str) -> Layer:
    def seconds() -> float:
        return random.randint(1, 32) / 8

    kinds = KINDS if mode == "mixed devices" else KINDS[:1]
    return Layer(
        id=f"l{number}",
        times=tuple(
            LayerTime(device_kind=kind, microbatch_size=1, forward_s=seconds(), backward_s=seconds()) for kind in kinds
        ),
        parameter_bytes=16 * random.randint(0, 4),
        output_bytes_per_sample=float(random.choice((0, 1, 2, 4, 8))),
        stash_bytes_per_sample=random.choice((None, 3.0, 16.0)),
        workspace_bytes=random.choice((0, 0, 9)),
        streamable=("streaming" in mode or mode == "split devices") and random.random() < 0.85,
    )


def _edges(random: Random, count: int) -> tuple[Edge, ...]:
    pairs = {(k, k + 1) for k in range(count - 1) if random.random() < 0.9}
    pairs |= {(a, b) for a in range(count) for b in range(a + 2, count) if random.random() < 0.35}
    return tuple(Edge(source=f"l{a}", target=f"l{b}") for a, b in sorted(pairs))


def _random_link(random: Random, **fields: Any) -> Link:
    return Link(
        bandwidth_bytes_per_s=random.choice((None, 2.0, 4.0, 8.0, 32.0)),
        latency_s=random.choice((0.0, 0.0, 0.125)),
        **fields,
    )


def _cluster(random: Random, devices: int, mode: str) -> Cluster:
    how: dict[str, Any] = {}
    if mode.startswith("blocking"):
        how = {"mode": "blocking", "exchange": mode.split()[1]}
    elif mode.startswith("streaming") or mode == "split devices":
        how = {"mode": "streaming", "chunks": int(mode[-1]) if mode[-1].isdigit() else random.choice((1, 2, 4))}
    elif mode == "direct skips":
        how = random.choice(({}, {"mode": "blocking"}))
    mixed, hosts = mode == "mixed devices", mode in ("shared card", "mixed links")
    outer = {"mode": random.choice(("blocking", "overlapped", "streaming"))} if mode == "mixed links" else {}
    execution = "async" if how.get("mode") == "streaming" or mode == "mixed links" else "sync"
    return Cluster(
        kinds=tuple(
            DeviceKind(
                name=name,
                execution=execution,  # type: ignore[arg-type]
                reserved_bytes=random.choice((0, 11)),
                memory_bandwidth_bytes_per_s=random.choice((None, 64.0)),
            )
            for name in KINDS
        ),
        devices=tuple(
            Device(
                id=f"d{k}",
                kind=random.choice(KINDS) if mixed else "one",
                host=f"h{k // 2}" if hosts else "h",
                speed=random.choice((0.5, 1.0, 2.0)) if mixed else 1.0,
            )
            for k in range(devices)
        ),
        links=Links(
            within_host=_random_link(random, **how), between_hosts=_random_link(random, **outer) if hosts else None
        ),
        host_nic=Link(bandwidth_bytes_per_s=random.choice((2.0, 8.0))) if mode == "shared card" else None,
        skip_tensors="direct" if mode == "direct skips" else "relay",
        receive_buffers=random.choice(("in_flight", "all")),
    )
