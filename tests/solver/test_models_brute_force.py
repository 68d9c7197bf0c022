"""The optimization models and dynamic programming against each other and against brute force, for the bottleneck.

The judge reads documents only and shares no code with what it judges.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from judges.bottleneck import RELATIVE, every_placement
from judges.models import EVERYONE, MODELS, binds, judged, solved
from judges.side_constraints import COMMUNICATION, bottleneck_requests, bound_by_memory
from judges.strategies import reproducible


def judge_many(examples: int, base: st.SearchStrategy[PlanRequest], solvers: tuple[str, ...]) -> Counter[str]:
    """Judges so many random requests; counts them, and those in which memory binds."""
    seen: Counter[str] = Counter()

    @settings(reproducible, max_examples=examples)
    @given(base)
    def try_one(request: PlanRequest) -> None:
        placements = every_placement(request)
        judged(request, placements, solvers)
        seen["judged"] += 1
        seen["bound"] += bool(placements) and binds(request, placements)

    try_one()
    return seen


@pytest.mark.parametrize("mode", COMMUNICATION)
def test_all_agree_with_brute_force(mode):
    seen = judge_many(65, bottleneck_requests(communication=mode, layers=(2, 6)), EVERYONE)
    assert seen["judged"] >= 65


@pytest.mark.parametrize("mode", COMMUNICATION)
def test_all_agree_with_brute_force_where_memory_binds(mode):
    base = bottleneck_requests(communication=mode, layers=(6, 7), devices=(3, 4))
    seen = judge_many(36, bound_by_memory(base), EVERYONE)
    assert seen["bound"] >= 36


@pytest.mark.parametrize("side", ["pins", "groups", "tied", "mixed", "direct"])
def test_models_agree_with_brute_force_with(side):
    base = bottleneck_requests(side, layers=(2, 6))
    solvers = MODELS if side == "direct" else EVERYONE
    seen = judge_many(35, base, solvers) + judge_many(20, bound_by_memory(base), solvers)
    assert seen["judged"] >= 55


def test_models_agree_with_brute_force_with_all_side_constraints_at_once():
    base = bottleneck_requests("pins", "groups", "tied", "mixed", "direct", layers=(3, 6), devices=(2, 4))
    assert judge_many(20, base, MODELS)["judged"] >= 20


@settings(reproducible, max_examples=20)
@given(
    bound_by_memory(bottleneck_requests(layers=(3, 6), devices=(2, 3), schedules=None, microbatch_sizes=None)),
    st.sampled_from(MODELS),
)
def test_chosen_jointly_is_the_best_of_candidates_taken_one_by_one(request, solver):
    divisors = tuple(size for size in range(1, request.batch_size + 1) if request.batch_size % size == 0)
    request = request.model_copy(update={"microbatch_sizes": divisors})
    jointly = solved(request, solver)

    singly = [
        solved(request.model_copy(update={"schedules": (name,), "microbatch_sizes": (size,)}), solver)
        for name in ("1f1b", "1f1b-so", "gpipe")
        for size in divisors
    ]

    assert objective_s(jointly) == pytest.approx(min(map(objective_s, singly)), rel=1e-6)
    event(f"best schedule {jointly.schedule and jointly.schedule.name}")


def objective_s(found: Plan) -> float:
    """Seconds of a mini-batch; infinity where nothing fits."""
    if found.prediction is None or found.schedule is None:
        return float("inf")
    return found.prediction.bottleneck_s * found.schedule.num_microbatches


def rescaled(request: PlanRequest, factor: float) -> PlanRequest:
    """The same problem with every duration multiplied."""
    document: dict[str, Any] = request.model_dump()
    _multiply(document, factor)
    return PlanRequest.model_validate(document)


def _multiply(node: Any, factor: float) -> None:
    if isinstance(node, list | tuple):
        for item in node:
            _multiply(item, factor)
    elif isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, float) and key.endswith("_s") and key != "time_limit_s":
                rate = key.endswith("_per_s")
                node[key] = value / factor if rate else value * factor
            else:
                _multiply(value, factor)


@pytest.mark.parametrize("solver", EVERYONE)
@settings(reproducible, max_examples=15)
@given(bottleneck_requests(layers=(2, 6), devices=(2, 4)), st.sampled_from((1e-3, 1 / 3600, 1e-9)))
def test_seconds_milliseconds_or_hours_give_the_same_plan(solver, request, factor):
    found, other = solved(request, solver), solved(rescaled(request, factor), solver)

    assert found.status == other.status
    assert [stage.layers for stage in found.stages] == [stage.layers for stage in other.stages]
    assert found.schedule == other.schedule
    if found.prediction and other.prediction:
        assert other.prediction.bottleneck_s == pytest.approx(found.prediction.bottleneck_s * factor, rel=RELATIVE)


@st.composite
def spread_requests(draw: st.DrawFn) -> PlanRequest:
    """Layers whose times are spread over nine orders of magnitude."""
    request = draw(bottleneck_requests(layers=(3, 6), devices=(2, 3)))
    magnitudes = st.integers(-9, 0).map(lambda exponent: 10.0**exponent)
    layers = tuple(
        layer.model_copy(
            update={
                "times": tuple(
                    time.model_copy(update={"forward_s": time.forward_s * m, "backward_s": time.backward_s * m})
                    for m in [draw(magnitudes)]
                    for time in layer.times
                )
            }
        )
        for layer in request.profile.layers
    )
    assume(any(time.forward_s or time.backward_s for layer in layers for time in layer.times))
    return request.model_copy(update={"profile": request.profile.model_copy(update={"layers": layers})})


@settings(reproducible, max_examples=40)
@given(spread_requests())
def test_times_spread_over_nine_orders_of_magnitude_do_not_break_a_proof(request):
    judged(request, every_placement(request), EVERYONE)
