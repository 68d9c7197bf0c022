"""Odd but legal inputs: the models answer as brute force does, or say that nothing fits and what would."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings

from bapipe.problem import Edge, Layer, Link, Pin, PlanRequest, TiedParameters
from judges.bottleneck import every_placement
from judges.instances import cluster, layer, request
from judges.models import EVERYONE, MODELS, judged, solved
from judges.side_constraints import bottleneck_requests
from judges.strategies import reproducible, with_memory

SLOW = Link(bandwidth_bytes_per_s=4.0, latency_s=0.5)
DEVICE_FIELDS = ("memory_bytes", "reserved_bytes", "skip_tensors")


def asked(layers: list[Layer], devices: int, link: Link | None = None, batch: int = 1, **fields: Any) -> PlanRequest:
    own = {name: fields.pop(name) for name in DEVICE_FIELDS if name in fields}
    fields.setdefault("communication", "serial")
    return request(layers, cluster(devices, link, **own), batch, objective="bottleneck", **fields)


def layers(names: str, size: float = 4.0, **fields: Any) -> list[Layer]:
    return [layer(name, k + 1.0, 1.0, output_bytes_per_sample=size, **fields) for k, name in enumerate(names)]


def edges(*pairs: str) -> tuple[Edge, ...]:
    return tuple(Edge(source=a, target=b) for a, b in pairs)


def tensor(pair: str, size: float, name: str | None = None) -> Edge:
    return Edge(source=pair[0], target=pair[1], bytes_per_sample=size, tensor=name)


ON_CUTS = {
    "no edges": asked(layers("abc"), 2, SLOW, edges=()),
    "a layer in no edge": asked(layers("abcd"), 3, SLOW, edges=edges("ab", "bc")),
    "two tensors between two layers": asked(
        layers("abc"), 3, SLOW, edges=(tensor("ab", 2.0, "x"), tensor("ab", 3.0, "y"), tensor("ac", 2.0, "x"))
    ),
    "one tensor, two sizes": asked(
        layers("abc"), 3, SLOW, edges=(tensor("ab", 2.0, "x"), tensor("ac", 9.0, "x"), *edges("bc"))
    ),
    "tensors without bytes": asked(layers("abc"), 3, SLOW, edges=(tensor("ab", 0.0), tensor("bc", 0.0))),
    "one layer": asked(layers("a"), 1),
    "more devices than layers": asked(layers("ab"), 4),
    "more devices than layers, none idle": asked(layers("ab"), 4, idle_devices=False),
    "no time at all": asked([layer(name, 0.0, 0.0) for name in "abc"], 2),
    "only latency": asked(
        [layer(name, 0.0, 0.0, output_bytes_per_sample=1.0) for name in "ab"],
        2,
        Link(latency_s=1.0),
        communication="overlap",
        idle_devices=False,
    ),
    "a layer too large": asked(layers("ab", parameter_bytes=100), 2, memory_bytes=50),
    "all memory reserved": asked([layer("a"), layer("b")], 2, memory_bytes=50, reserved_bytes=50),
    "work space a byte too large": asked(
        [layer("a", parameter_bytes=4), layer("b", workspace_bytes=2)], 1, memory_bytes=17
    ),
    "no memory": asked(layers("ab", parameter_bytes=4), 2, memory_bytes=0),
    "a group against pins": asked(
        layers("abc"),
        2,
        groups=(("a", "c"),),
        pins=(Pin(layer="a", stage="first"), Pin(layer="c", stage="last")),
        idle_devices=False,
    ),
    "groups that overlap": asked(layers("abcd"), 2, groups=(("a", "b"), ("b", "c"))),
    "a group around another layer": asked(layers("abcd"), 2, groups=(("a", "c"),)),
    "fractional bytes": asked(
        [layer("a", stash_bytes_per_sample=0.7, output_bytes_per_sample=0.1), layer("b", stash_bytes_per_sample=1 / 3)],
        2,
        batch=4,
        microbatch_sizes=(1, 2, 4),
        memory_bytes=2,
    ),
    "times from picoseconds to days": asked([layer("a", 1e5, 1e-9), layer("b", 3e-9, 1e6), layer("c", 1e-12, 0.0)], 3),
    "a small load beside hours on the other kind of device": asked(
        [layer("a", 0.3, 0.0), layer("b", 3e-7, 2e-6), layer("c", 3000.0, 0.0), layer("d", 0.0, 0.0)], 4
    ),
    "terabytes beside bytes": asked(
        [layer(name, parameter_bytes=size) for name, size in zip("abc", (10**13, 3, 10**13), strict=True)],
        2,
        memory_bytes=10**14,
    ),
}

ON_GRAPHS = {
    "pins against the order": asked(layers("ab"), 2, pins=(Pin(layer="a", device="d1"), Pin(layer="b", device="d0"))),
    "one layer pinned to two devices": asked(
        layers("ab"), 2, pins=(Pin(layer="a", device="d0"), Pin(layer="a", device="d1"))
    ),
    "the last layer pinned to the first device": asked(layers("ab"), 3, pins=(Pin(layer="b", device="d0"),)),
    "the first layer pinned to the last device": asked(layers("abcd"), 3, pins=(Pin(layer="a", device="d2"),)),
    "a pin beyond the stages": asked(layers("abcd"), 3, pins=(Pin(layer="d", device="d2"),), max_stages=2),
    "everything tied": asked(
        layers("abcd"), 4, memory_bytes=300, tied_parameters=(TiedParameters(layers=tuple("abcd"), parameter_bytes=40),)
    ),
    "tied twice": asked(
        layers("abc", parameter_bytes=4),
        3,
        memory_bytes=130,
        tied_parameters=(
            TiedParameters(layers=("a", "b"), parameter_bytes=8),
            TiedParameters(layers=("a", "c"), parameter_bytes=12),
        ),
    ),
    "tied parameters too large": asked(
        layers("ab"), 2, memory_bytes=200, tied_parameters=(TiedParameters(layers=("a", "b"), parameter_bytes=4000),)
    ),
    "sent past a stage": asked(
        layers("abcd"), 3, SLOW, skip_tensors="direct", edges=edges("ab", "ad", "bc", "cd")
    ),
}  # fmt: skip


@pytest.mark.parametrize("solver", EVERYONE)
@pytest.mark.parametrize("name", ON_CUTS)
def test_odd_inputs(name: str, solver: str) -> None:
    judged(ON_CUTS[name], every_placement(ON_CUTS[name]), (solver,))


@pytest.mark.parametrize("solver", MODELS)
@pytest.mark.parametrize("name", ON_GRAPHS)
def test_odd_inputs_for_the_models(name: str, solver: str) -> None:
    judged(ON_GRAPHS[name], every_placement(ON_GRAPHS[name]), (solver,))


def test_contradicting_pins_are_named() -> None:
    found = solved(ON_GRAPHS["pins against the order"], "cp-sat")
    assert found.explanation == (
        "the pin of 'a' to d1, the pin of 'b' to d0 and the order of layers and devices cannot all be kept, "
        "whatever the memory",
    )


@settings(reproducible, max_examples=25)
@given(bottleneck_requests("pins", "tied", "mixed", "direct", layers=(2, 5), devices=(1, 3)))
def test_infeasible_exactly_when_nothing_fits_and_the_suggested_memory_is_enough(request: PlanRequest) -> None:
    placements = every_placement(request)
    assume(placements)
    least = math.ceil(min(max(placement.peak_bytes) for placement in placements))
    assert solved(with_memory(request, least), "cp-sat").status == "optimal"

    found = solved(with_memory(request, least - 1), "cp-sat")

    assert found.status == "infeasible"
    (suggested,) = re.findall(r"\((\d+) bytes\)", " ".join(found.explanation))
    assert least <= int(suggested) <= max(least + 1, least * 1.02)
    assert solved(with_memory(request, int(suggested)), "cp-sat").status == "optimal"
