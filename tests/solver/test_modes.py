"""The search over links and devices of every mode: it finds what brute force finds, and proves no more than is true."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.check import check
from bapipe.errors import TimeLimitError
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import Cluster, PlanRequest
from judges.brute_force import RELATIVE
from judges.modes import MODES, Option, every_plan, random_request, tight
from judges.strategies import reproducible

SEEDS = st.integers(0, 10**6)
SLACK = 1 + RELATIVE


def judged(found: Plan, options: list[Option]) -> None:
    """`found` is one of the options, as fast as the fastest of those that fit, and is proven; or nothing fits."""
    fitting = [option for option in options if option.fits(found.request)]
    assert check(found) == []
    if not fitting:
        assert found.status == "infeasible"
        return
    least_s = min(option.step_time_s for option in fitting)
    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.proof.lower_bound_s == pytest.approx(least_s, rel=10 * RELATIVE)
    assert found.prediction.step_time_s == pytest.approx(least_s, rel=RELATIVE)
    chosen = [option for option in options if same(found, option.plan)]
    assert chosen, "the plan is none of those that brute force allows"
    assert chosen[0].step_time_s == pytest.approx(found.prediction.step_time_s, rel=RELATIVE)
    assert {d.device: d.peak_memory_bytes for d in found.prediction.devices} == pytest.approx(chosen[0].peaks)


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans are the same but for figures; shares of split devices to within rounding."""
    assert one.schedule is not None
    assert other.schedule is not None
    shares = [[stage.forward_share or 0.0 for stage in plan.stages] for plan in (one, other)]
    placed = [[(set(stage.layers), stage.devices) for stage in plan.stages] for plan in (one, other)]
    if one.schedule != other.schedule or placed[0] != placed[1]:
        return False
    return shares[0] == pytest.approx(shares[1])


@pytest.mark.parametrize("mode", MODES)
def test_the_optimum_is_that_of_brute_force(mode: str) -> None:
    tried = 0

    @settings(reproducible, max_examples=44)
    @given(SEEDS)
    def try_one(seed: int) -> None:
        nonlocal tried
        request = random_request(seed, mode)
        options = list(every_plan(request))
        tried += 1
        judged(plan(tight(request, options, seed) if options and seed % 3 == 0 else request), options)

    try_one()
    assert tried >= 40


@pytest.mark.parametrize("mode", MODES)
def test_a_search_that_is_stopped_claims_an_optimum_only_where_it_has_one(mode: str) -> None:
    @settings(reproducible, max_examples=12)
    @given(SEEDS, st.integers(0, 30))
    def try_one(seed: int, looks: int) -> None:
        request = random_request(seed, mode)
        left = iter(range(looks))
        told: list[float] = []
        try:
            found = plan(
                request,
                should_stop=lambda: next(left, None) is None,
                on_progress=lambda progress: told.append(progress.lower_bound_s or 0.0),
            )
        except TimeLimitError:
            return
        if found.prediction is None:
            return
        least_s = min(option.step_time_s for option in every_plan(request))
        assert all(bound_s <= least_s * SLACK for bound_s in told)
        assert (found.proof.lower_bound_s or 0.0) <= least_s * SLACK
        closed = found.prediction.step_time_s <= least_s * SLACK
        assert closed or found.status == "feasible"

    try_one()


def test_no_bound_is_claimed_where_links_stream_that_holds_only_where_they_do_not() -> None:
    """Stored and forwarded, no plan of these could be as fast as those that stream."""
    faster = 0
    for seed in range(40):
        request = random_request(seed, "streaming 4")
        found = plan(request)
        stored = plan(request.model_copy(update={"cluster": _stored(request)}))
        assert found.status == stored.status == "optimal"
        assert found.proof.lower_bound_s is not None
        assert stored.proof.lower_bound_s is not None
        assert found.proof.lower_bound_s <= stored.proof.lower_bound_s * SLACK
        faster += found.proof.lower_bound_s < stored.proof.lower_bound_s / SLACK
    assert faster >= 10


def _stored(request: PlanRequest) -> Cluster:
    kinds = tuple(kind.model_copy(update={"execution": "sync"}) for kind in request.cluster.kinds)
    return request.cluster.model_copy(update={"kinds": kinds})
