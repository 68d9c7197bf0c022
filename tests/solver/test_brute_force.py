"""The planner against brute force: all partitions × schedules × micro-batch sizes × numbers of devices.

The judge reads documents only and shares no code with what it judges.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bapipe.check import check
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import Pin, PlanRequest
from judges import replay
from judges.brute_force import MAX_PLANS, PIPELINES, RELATIVE, Option, best_options, every_plan, finish_s
from judges.instances import cluster, layer, request
from judges.strategies import reproducible, requests, seconds, tight_requests, with_memory

COMMUNICATION = ("none", "overlap", "serial")


def judged(request: PlanRequest, options: list[Option], found: Plan) -> None:
    """`found` is an optimum of those options that fit, is what it says, and is proven; or nothing fits."""
    fitting = [option for option in options if option.fits(request)]
    if not fitting:
        assert found.status == "infeasible"
        return
    least = min(option.objective_s(request) for option in fitting)
    chosen = chosen_option(found, fitting)
    scale = chosen.num_microbatches if request.objective == "bottleneck" else 1
    assert found.status == "optimal"
    assert found.proof.lower_bound_s is not None
    assert chosen.objective_s(request) == pytest.approx(least, rel=RELATIVE)
    assert found.proof.lower_bound_s * scale == pytest.approx(least, rel=RELATIVE)
    priced_as(found, chosen)
    assert check(found) == []
    if request.objective == "step-time":
        as_good = [option for option in fitting if option.objective_s(request) <= least * (1 + RELATIVE)]
        assert preference(chosen) == min(map(preference, as_good))


def preference(option: Option) -> tuple[int, float]:
    """Of plans as good: no idle device, then the least peak memory."""
    return -option.num_devices, max(option.peak_bytes)


def chosen_option(found: Plan, options: list[Option]) -> Option:
    """The one of `options` that `found` is."""
    assert found.schedule is not None
    stages = tuple(frozenset(stage.layers) for stage in found.stages)
    devices = [device for stage in found.stages for device in stage.devices]
    assert devices == [device.id for device in found.request.cluster.devices[: len(devices)]]
    key = (found.schedule.name, found.schedule.num_microbatches, stages, len(devices))
    matching = [o for o in options if (o.schedule, o.num_microbatches, o.stages, o.num_devices) == key]
    assert len(matching) == 1, "the plan is none of those that brute force allows"
    return matching[0]


def priced_as(found: Plan, option: Option) -> None:
    """The plan's figures are those of brute force; bytes exactly."""
    assert found.prediction is not None
    assert found.prediction.step_time_s == pytest.approx(option.step_time_s, rel=RELATIVE)
    assert found.prediction.bottleneck_s == pytest.approx(option.bottleneck_s, rel=RELATIVE)
    assert tuple(device.peak_memory_bytes for device in found.prediction.devices) == option.peak_bytes
    stages = (max(option.peak_bytes),) if option.replicas > 1 else option.peak_bytes
    assert tuple(stage.peak_memory_bytes for stage in found.stages) == stages


def binds(request: PlanRequest, options: list[Option]) -> bool:
    """Whether something fits, but nothing that is best without a limit, on a problem that is not tiny."""
    best = best_options(request, options)
    tiny = len(request.profile.layers) < 6 or len(request.cluster.devices) < 3
    return not tiny and any(o.fits(request) for o in options) and not any(o.fits(request) for o in best)


def tried(request: PlanRequest) -> list[Option]:
    """Every plan, of which there are not too many."""
    options = every_plan(request)
    assert len(options) <= MAX_PLANS
    return options


@settings(reproducible, max_examples=110)
@given(requests())
def test_step_time_optimum_is_that_of_brute_force(request):
    options = tried(request)
    judged(request, options, plan(request))


@settings(reproducible, max_examples=60)
@given(st.sampled_from(COMMUNICATION).flatmap(lambda mode: requests(objective="bottleneck", communication=mode)))
def test_bottleneck_optimum_is_that_of_brute_force(request):
    options = tried(request)
    judged(request, options, plan(request))


def judged_where_memory_binds(examples: int, **fields: Any) -> int:
    """Judges the plans of so many requests; returns in how many memory bound."""
    bound = 0

    @settings(reproducible, max_examples=examples)
    @given(tight_requests(**fields))
    def try_one(request: PlanRequest) -> None:
        nonlocal bound
        options = tried(request)
        bound += binds(request, options)
        judged(request, options, plan(request))

    try_one()
    return bound


def test_step_time_optimum_where_memory_binds():
    assert judged_where_memory_binds(80) >= 80


@pytest.mark.parametrize("mode", COMMUNICATION)
def test_bottleneck_optimum_where_memory_binds(mode):
    assert judged_where_memory_binds(20, objective="bottleneck", communication=mode) >= 20


@settings(reproducible, max_examples=30)
@given(requests(layers=(3, 6), devices=(2, 4)), st.sampled_from((0.05, 0.25)))
def test_a_plan_within_a_gap_is_within_that_gap_of_the_optimum(request, gap):
    options = tried(request)
    assume(options)
    least = min(option.objective_s(request) for option in options)

    found = plan(request.model_copy(update={"gap": gap}))

    reached = chosen_option(found, options).objective_s(request)
    assert least <= reached * (1 + RELATIVE)
    assert reached * (1 - gap) <= least * (1 + RELATIVE)
    assert found.proof.lower_bound_s is not None
    assert found.proof.lower_bound_s <= least * (1 + RELATIVE)
    assert found.proof.gap is not None
    assert found.proof.gap <= gap + RELATIVE
    assert found.status == ("optimal" if found.proof.gap <= RELATIVE else "feasible")


def least_peak_bytes(options: list[Option]) -> int:
    """The fewest bytes of a device in which one of the options fits."""
    return ceil(min(max(option.peak_bytes) for option in options))


def suggested_bytes(found: Plan) -> int:
    """The bytes at which an infeasible plan says that it would fit."""
    figures = re.findall(r"\((\d+) bytes\)", " ".join(found.explanation))
    assert len(figures) == 1, found.explanation
    return int(figures[0])


@settings(reproducible, max_examples=40)
@given(requests(schedules=PIPELINES), st.sampled_from(("step-time", "bottleneck")))
def test_infeasible_exactly_when_nothing_fits_and_the_suggested_memory_is_enough(request, objective):
    request = request.model_copy(update={"objective": objective})
    options = tried(request)
    assume(options)
    least = least_peak_bytes(options)
    assume(least > 0)

    assert plan(with_memory(request, least)).status == "optimal"
    found = plan(with_memory(request, least - 1))

    assert found.status == "infeasible"
    suggested = suggested_bytes(found)
    assert suggested >= least
    if request.profile.edges is None:
        assert suggested == least
    assert plan(with_memory(request, suggested)).status == "optimal"


@settings(reproducible, max_examples=200)
@given(
    st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=5),
    st.integers(1, 8),
    st.sampled_from(PIPELINES),
    st.booleans(),
)
def test_the_judges_agree_on_when_stages_end(stages, m, name, training):
    forward, backward, send = (list(times) for times in zip(*stages, strict=True))
    orders = [replay.order(name, s, len(stages), m, training=training) for s in range(len(stages))]
    starts = replay.pipeline_starts(forward, backward, send[:-1], orders)
    ends = [
        max(start + (forward if kind == "F" else backward)[s] for (kind, _), start in mine.items())
        for s, mine in enumerate(starts)
    ]
    assert finish_s(forward, backward, send[:-1], orders) == ends


def test_no_device_idles_where_a_plan_that_uses_all_is_as_good():
    asked = request([layer("a"), layer("b")], 2, 1, schedules=("1f1b-so",))
    assert [stage.layers for stage in plan(asked).stages] == [("a",), ("b",)]


@pytest.mark.parametrize("side", [{"groups": [("a", "b")]}, {"pins": [Pin(layer="a", stage="last")]}])
def test_infeasible_without_a_memory_limit_is_explained(side):
    found = plan(request([layer("a"), layer("b")], 2, 1, idle_devices=False, **side))
    assert found.status == "infeasible"
    assert found.explanation


@pytest.mark.parametrize(
    "asked",
    [
        request([layer("a", parameter_bytes=9)], cluster(2, memory_bytes=8), 2, schedules=("data-parallel",)),
        request([layer("a")], cluster(2), 1, schedules=("data-parallel",)),
        request([layer("a")], cluster(2), 1, schedules=("1f1b",), idle_devices=False),
        request([layer("a", parameter_bytes=9)], cluster(2, memory_bytes=8), 2, idle_devices=False),
    ],
    ids=["replicas too small", "fewer samples than devices", "fewer layers than devices", "nothing small enough"],
)
def test_whatever_is_infeasible_is_explained(asked):
    found = plan(asked)
    assert found.status == "infeasible"
    assert found.explanation


def test_data_parallelism_better_than_any_pipeline_is_its_own_bound_with_a_gap():
    found = plan(request([layer(name) for name in "abc"], 2, 8, gap=0.05))
    assert found.proof.lower_bound_s is not None
    assert found.prediction is not None
    assert found.proof.lower_bound_s <= found.prediction.step_time_s


def test_suggested_memory_is_rounded_up():
    asked = request([layer("a", stash_bytes_per_sample=2.5)], cluster(1, memory_bytes=2), 1)
    found = plan(asked)
    assert found.status == "infeasible"
    assert suggested_bytes(found) == 3


def test_no_device_idles_where_the_one_plan_that_uses_all_is_as_good():
    times = {"a": (1.0, 0.0, 0), "b": (0.0, 2.0, 0), "c": (2.0, 2.0, 20), "d": (2.0, 1.0, 20)}
    layers = [layer(name, f, b, parameter_bytes=size) for name, (f, b, size) in times.items()]
    asked = request(layers, 3, 1, schedules=("gpipe",), optimizer_bytes_per_parameter=0)
    found = plan(with_memory(asked, {"d0": 100, "d1": 16, "d2": 100}))
    assert [stage.layers for stage in found.stages] == [("a",), ("b",), ("c", "d")]


def test_of_plans_as_good_the_one_with_least_peak_memory_is_taken():
    times = {"a": (0.0, 1.0, 4), "b": (1.0, 0.0, 20), "c": (1.0, 2.0, 0)}
    layers = [layer(name, f, b, parameter_bytes=size) for name, (f, b, size) in times.items()]
    found = plan(request(layers, 2, 1, schedules=("1f1b",), optimizer_bytes_per_parameter=0))
    assert max(stage.peak_memory_bytes for stage in found.stages) == 40


def test_fractional_bytes_at_the_edge_of_the_limit_are_no_disagreement():
    stashes = (0.2, 1.4000000000000001)
    layers = [layer(f"l{k}", stash_bytes_per_sample=size) for k, size in enumerate(stashes)]
    asked = request(layers, cluster(2, memory_bytes=14), 10, microbatch_sizes=(10,), schedules=("1f1b",))
    assert plan(asked.model_copy(update={"idle_devices": False})).status == "optimal"
