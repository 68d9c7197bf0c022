"""What must not change an optimum: names, the order in which things are written, and the units of time and bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import Layer, Link, ModelProfile, PlanRequest
from judges.brute_force import PIPELINES, RELATIVE, every_plan, topological_order
from judges.strategies import reproducible, requests, tight_requests

BOTH = ("step-time", "bottleneck")

some_requests = st.sampled_from(BOTH).flatmap(
    lambda objective: st.one_of(requests(layers=(2, 7), objective=objective), tight_requests(objective=objective))
)
few = settings(reproducible, max_examples=40)


def solved(request: PlanRequest) -> Plan:
    """The plan of a request that has some partition."""
    assume(every_plan(request))
    return plan(request)


def objective_s(found: Plan) -> float | None:
    """Seconds of a mini-batch; None where nothing fits."""
    if found.prediction is None or found.schedule is None:
        return None
    if found.request.objective == "bottleneck":
        return found.prediction.bottleneck_s * found.schedule.num_microbatches
    return found.prediction.step_time_s


def same_optimum(changed: Plan, original: Plan, factor: float = 1.0) -> None:
    """Both are infeasible, or both optimal with the same objective but for `factor`."""
    assert changed.status == original.status
    expected = objective_s(original)
    assert objective_s(changed) == (None if expected is None else pytest.approx(expected * factor, rel=RELATIVE))


def renamed(profile: ModelProfile, name: Callable[[str], str]) -> ModelProfile:
    """The profile with other layer ids."""
    edges = profile.edges
    return profile.model_copy(
        update={
            "layers": tuple(layer.model_copy(update={"id": name(layer.id)}) for layer in profile.layers),
            "edges": edges
            and tuple(e.model_copy(update={"source": name(e.source), "target": name(e.target)}) for e in edges),
            "groups": tuple(tuple(map(name, group)) for group in profile.groups),
            "pins": tuple(pin.model_copy(update={"layer": name(pin.layer)}) for pin in profile.pins),
        }
    )


def with_profile(request: PlanRequest, **fields: object) -> PlanRequest:
    """The request with some fields of its profile replaced."""
    return request.model_copy(update={"profile": request.profile.model_copy(update=fields)})


@few
@given(some_requests, st.data())
def test_names_of_layers_do_not_matter(request, data):
    found = solved(request)
    names = [layer.id for layer in request.profile.layers]
    others = dict(zip(names, data.draw(st.permutations([*names[1:], "another"])), strict=True))

    changed = plan(request.model_copy(update={"profile": renamed(request.profile, others.__getitem__)}))

    same_optimum(changed, found)
    assert [[others[layer] for layer in stage.layers] for stage in found.stages] == [
        list(stage.layers) for stage in changed.stages
    ]


@few
@given(some_requests, st.data())
def test_the_order_of_edges_groups_and_pins_does_not_matter(request, data):
    found = solved(request)
    profile = request.profile
    changed = with_profile(
        request,
        edges=profile.edges and tuple(data.draw(st.permutations(profile.edges))),
        groups=tuple(group[::-1] for group in profile.groups),
        pins=profile.pins[::-1],
    )
    same_optimum(plan(changed), found)


@few
@given(some_requests, st.data())
def test_the_order_of_layers_does_not_matter_to_pipelines_cut_anywhere(request, data):
    request = request.model_copy(update={"cuts": "any", "schedules": PIPELINES})
    assume(request.profile.edges is not None)
    found = solved(request)
    same_optimum(plan(with_profile(request, layers=tuple(data.draw(st.permutations(request.profile.layers))))), found)


@few
@given(some_requests)
def test_layers_written_in_topological_order_are_cut_the_same(request):
    found = solved(request)
    same_optimum(plan(with_profile(request, layers=tuple(topological_order(request)))), found)


@few
@given(some_requests, st.floats(1e-3, 1e3))
def test_times_have_no_scale(request, factor):
    found = solved(request)
    cluster = request.cluster
    slower = [
        kind.model_copy(
            update={
                "launch_overhead_s": kind.launch_overhead_s * factor,
                "memory_bandwidth_bytes_per_s": _divided(kind.memory_bandwidth_bytes_per_s, factor),
            }
        )
        for kind in cluster.kinds
    ]
    changed = with_profile(request, layers=tuple(_slower_layer(layer, factor) for layer in request.profile.layers))
    changed = changed.model_copy(update={"cluster": cluster.model_copy(update={"kinds": tuple(slower)})})
    changed = _with_links(changed, lambda link: _link(link, 1 / factor, factor))
    same_optimum(plan(changed), found, factor)


@few
@given(some_requests, st.integers(2, 1000))
def test_bytes_have_no_scale(request, factor):
    found = solved(request)
    cluster = request.cluster
    kinds = tuple(
        _times(kind, factor, "memory_bytes", "reserved_bytes", "memory_bandwidth_bytes_per_s") for kind in cluster.kinds
    )
    devices = tuple(_times(device, factor, "memory_bytes") for device in cluster.devices)
    fields = [name for name in Layer.model_fields if "_bytes" in name]
    edges = request.profile.edges
    changed = with_profile(
        request,
        layers=tuple(_times(layer, factor, *fields) for layer in request.profile.layers),
        edges=edges and tuple(_times(edge, factor, "bytes_per_sample") for edge in edges),
        bytes_per_parameter=request.profile.bytes_per_parameter,
    ).model_copy(
        update={
            "cluster": cluster.model_copy(update={"kinds": kinds, "devices": devices}),
            "gradient_bucket_bytes": request.gradient_bucket_bytes * factor,
        }
    )
    same_optimum(plan(_with_links(changed, lambda link: _link(link, factor, 1.0))), found)


def _times(document, factor, *fields):
    """A document with those of its fields that are given multiplied."""
    values = {name: getattr(document, name) for name in fields}
    return document.model_copy(update={name: value * factor for name, value in values.items() if value is not None})


def _divided(value: float | None, factor: float) -> float | None:
    return None if value is None else value / factor


def _slower_layer(layer: Layer, factor: float) -> Layer:
    return layer.model_copy(update={"times": tuple(_times(t, factor, "forward_s", "backward_s") for t in layer.times)})


def _link(link: Link, bandwidth: float, latency: float) -> Link:
    return _times(_times(link, bandwidth, "bandwidth_bytes_per_s"), latency, "latency_s")


def _with_links(request: PlanRequest, change: Callable[[Link], Link]) -> PlanRequest:
    links = request.cluster.links
    changed = links.model_copy(
        update={
            "within_host": change(links.within_host),
            "between_hosts": links.between_hosts and change(links.between_hosts),
            "pairs": tuple(pair.model_copy(update={"link": change(pair.link)}) for pair in links.pairs),
        }
    )
    return request.model_copy(update={"cluster": request.cluster.model_copy(update={"links": changed})})
