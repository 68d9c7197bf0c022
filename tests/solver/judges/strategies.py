"""Random requests small enough for brute force. Times and bytes are dyadic, so that sums are without rounding."""

from __future__ import annotations

from math import ceil
from typing import Any

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st

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
    Pin,
    PlanRequest,
)
from judges.brute_force import MAX_PLANS, best_options, every_plan, num_plans

reproducible = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

KIND = "reference"
POINTS = ((1,), (1,), (2,), (1, 2), (1, 5), (2, 4))
"""Micro-batch sizes at which a layer is measured."""

seconds = st.sampled_from((0.0, 0.25, 0.5, 1.0, 1.0, 1.5, 2.0, 2.75, 3.0, 5.0, 8.0))
sizes = st.sampled_from((0, 0, 1, 2, 3, 5, 8, 13, 24, 40))


@st.composite
def layer_lists(draw: st.DrawFn, num_layers: int) -> list[Layer]:
    """Layers of any times and sizes."""
    points = draw(st.sampled_from(POINTS))
    return [draw(_layer(f"l{number}", points)) for number in range(num_layers)]


@st.composite
def _layer(draw: st.DrawFn, name: str, points: tuple[int, ...]) -> Layer:
    first, second = (draw(seconds), draw(seconds)), (draw(seconds), draw(seconds))
    grown = (first, (first[0] + second[0], first[1] + second[1]))
    times = [
        LayerTime(device_kind=KIND, microbatch_size=size, forward_s=f, backward_s=b)
        for size, (f, b) in zip(points, grown, strict=False)
    ]
    own = draw(st.integers(0, 3))
    return Layer(
        id=name,
        times=tuple(times),
        parameter_bytes=4 * draw(sizes),
        gradient_bytes=2 * draw(sizes) if own == 1 else None,
        master_weight_bytes=draw(sizes) if own == 2 else 0,
        output_bytes_per_sample=draw(sizes) / 2,
        stash_bytes_per_sample=draw(sizes) / 2 if own else None,
        workspace_bytes=draw(sizes) if own == 3 else 0,
    )


@st.composite
def edge_lists(draw: st.DrawFn, num_layers: int) -> tuple[Edge, ...] | None:
    """A chain, or a DAG with skips, parallel branches, several sources and sinks; tensors of the edges' own."""
    shape = draw(st.sampled_from(("chain", "skips", "skips", "branches", "branches", "any")))
    if shape == "chain":
        return None
    edges = []
    sizes_of: dict[int, float] = {}
    for target in range(1, num_layers):
        earlier = st.integers(0, target - 1)
        sources = {"skips": {target - 1}, "branches": {draw(earlier)}, "any": set()}[shape]
        sources |= draw(st.sets(earlier, max_size=2 if shape == "any" else 1))
        for source in sorted(sources):
            own = draw(st.sampled_from((None, None, None, "its own", "shared")))
            if own:
                sizes_of.setdefault(source, draw(sizes) / 4)
            edges.append(
                Edge(
                    source=f"l{source}",
                    target=f"l{target}",
                    bytes_per_sample=sizes_of[source] if own else None,
                    tensor="t" if own == "shared" else None,
                )
            )
    return tuple(edges)


@st.composite
def profiles(draw: st.DrawFn, min_layers: int, max_layers: int) -> ModelProfile:
    """A network with groups that no cut may split and layers pinned to the ends, now and then."""
    count = draw(st.integers(min_layers, max_layers))
    layers = draw(layer_lists(count))
    edges = draw(edge_lists(count))
    if edges is not None and draw(st.booleans()):
        layers = draw(st.permutations(layers))
    start = draw(st.integers(0, count - 2)) if count > 1 and draw(st.integers(0, 3)) == 3 else None
    pins = []
    if draw(st.integers(0, 5)) == 5:
        pins.append(Pin(layer=f"l{draw(st.integers(0, count - 1))}", stage=draw(st.sampled_from(("first", "last")))))
    return ModelProfile(
        name="random",
        layers=tuple(layers),
        edges=edges,
        bytes_per_parameter=draw(st.sampled_from((2, 4))),
        groups=() if start is None else ((f"l{start}", f"l{start + 1}"),),
        pins=tuple(pins),
    )


links = st.one_of(
    st.just(Link()),
    st.builds(
        Link,
        bandwidth_bytes_per_s=st.sampled_from((1.0, 4.0, 16.0, 64.0)),
        latency_s=st.sampled_from((0.0, 0.0, 0.25, 1.0)),
    ),
)


@st.composite
def clusters(draw: st.DrawFn, min_devices: int, max_devices: int) -> Cluster:
    """Devices of one kind, on one host or two, without memory limits."""
    count = draw(st.integers(min_devices, max_devices))
    inside = draw(links)
    first_host = draw(st.integers(1, count)) if draw(st.booleans()) else count
    pairs: tuple[PairLink, ...] = ()
    if count > 1 and draw(st.integers(0, 4)) == 4:
        pairs = (PairLink(devices=("d1", "d0"), link=draw(links)),)
    speed = draw(st.sampled_from((1.0, 1.0, 2.0, 0.5)))
    return Cluster(
        kinds=(
            DeviceKind(
                name=KIND,
                reserved_bytes=draw(st.sampled_from((0, 0, 7))),
                memory_bandwidth_bytes_per_s=draw(st.sampled_from((None, None, 16.0, 256.0))),
                launch_overhead_s=draw(st.sampled_from((0.0, 0.0, 0.25))),
            ),
        ),
        devices=tuple(
            Device(id=f"d{k}", kind=KIND, host="near" if k < first_host else "far", speed=speed) for k in range(count)
        ),
        links=Links(within_host=inside, between_hosts=draw(links) if first_host < count else None, pairs=pairs),
        receive_buffers=draw(st.sampled_from(("in_flight", "all"))),
    )


@st.composite
def requests(
    draw: st.DrawFn, layers: tuple[int, int] = (1, 6), devices: tuple[int, int] = (1, 4), **fixed: Any
) -> PlanRequest:
    """A request with at most `MAX_PLANS` plans and no memory limit."""
    batch = draw(st.sampled_from((1, 2, 4, 4, 6, 8)))
    divisors = [size for size in range(1, batch + 1) if batch % size == 0]
    fields = {
        "task": draw(st.sampled_from(("training", "training", "training", "inference"))),
        "cuts": draw(st.sampled_from(("any", "any", "topological-order"))),
        "schedules": draw(st.sampled_from(SCHEDULES)),
        "microbatch_sizes": draw(st.one_of(st.none(), st.lists(st.sampled_from(divisors), min_size=1, max_size=2))),
        "idle_devices": draw(st.integers(0, 4)) < 4,
        "max_stages": draw(st.sampled_from((None, None, None, 2))),
        "max_replication": draw(st.sampled_from((None, None, 2))),
        "optimizer_bytes_per_parameter": draw(st.sampled_from((0, 4, 8))),
        "gradient_bucket_bytes": draw(st.sampled_from((1, 64, 2**20))),
        **fixed,
    }
    request = PlanRequest(profile=draw(profiles(*layers)), cluster=draw(clusters(*devices)), batch_size=batch, **fields)
    return _smaller(request)


SCHEDULES = (None, None, ("1f1b",), ("1f1b-so",), ("gpipe",), ("gpipe", "1f1b-so"), ("data-parallel", "1f1b"))


def _smaller(request: PlanRequest) -> PlanRequest:
    """The request with fewer micro-batch sizes, then fewer cuts, until it has at most `MAX_PLANS` plans."""
    if num_plans(request) > MAX_PLANS:
        request = request.model_copy(update={"microbatch_sizes": (max(1, request.batch_size // 4),)})
    if num_plans(request) > MAX_PLANS:
        request = request.model_copy(update={"cuts": "topological-order"})
    return request


def with_memory(request: PlanRequest, limits: int | dict[str, int]) -> PlanRequest:
    """The request with so many bytes on every device, or on the devices named."""
    cluster = request.cluster
    if isinstance(limits, int):
        kinds = tuple(kind.model_copy(update={"memory_bytes": limits}) for kind in cluster.kinds)
        return request.model_copy(update={"cluster": cluster.model_copy(update={"kinds": kinds})})
    devices = tuple(
        device.model_copy(update={"memory_bytes": limits.get(device.id, device.memory_bytes)})
        for device in cluster.devices
    )
    return request.model_copy(update={"cluster": cluster.model_copy(update={"devices": devices})})


@st.composite
def tight_requests(draw: st.DrawFn, **fields: Any) -> PlanRequest:
    """A request with memory in which some plan fits, and none of those that would be best without a limit."""
    request = draw(requests(layers=(6, 7), devices=(3, 4), **fields))
    options = every_plan(request)
    assume(options)
    wanted = min(max(option.peak_bytes) for option in best_options(request, options))
    smaller = sorted({max(option.peak_bytes) for option in options if ceil(max(option.peak_bytes)) < wanted})
    assume(smaller)
    limit = ceil(smaller[draw(st.integers(0, len(smaller) - 1))])
    if draw(st.booleans()):
        return with_memory(request, limit)
    possible = [option for option in options if max(option.peak_bytes) <= limit]
    peaks = possible[draw(st.integers(0, len(possible) - 1))].peak_bytes
    place = draw(st.integers(0, len(peaks) - 1))
    device = request.cluster.devices[place].id
    return with_memory(with_memory(request, limit), {device: ceil(peaks[place])})
