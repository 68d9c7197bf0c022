"""No lower bound is above what brute force finds: those of tables, of nodes, and of searches that were stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bapipe.bounds import FrontBounds, balanced_bound_s, front_bounds
from bapipe.cost.cut_costs import cut_costs
from bapipe.cuts import cut_space
from bapipe.errors import TimeLimitError
from bapipe.formulations.base import PartitionProblem
from bapipe.formulations.step_time import StepTimeSearch
from bapipe.planner import plan
from bapipe.problem import PlanRequest
from judges.brute_force import PIPELINES, RELATIVE, Option, every_plan
from judges.strategies import reproducible, requests, tight_requests

SLACK = 1 + RELATIVE


@dataclass(frozen=True)
class Case:
    """The partitions of one model under one schedule, number of micro-batches and stages, as cuts with step times."""

    problem: PartitionProblem
    partitions: list[tuple[tuple[int, ...], float]]

    @property
    def least_s(self) -> float:
        return min(step_s for _, step_s in self.partitions)


def cases(request: PlanRequest) -> Iterator[Case]:
    """Every problem in the request that some partition fits."""
    space = cut_space(request.profile, request.cuts)
    layers = request.profile.layers
    cut_of = {
        frozenset(layers[space.graph.layers[p]].id for p in space.stage_positions(0, cut)): cut
        for cut in range(1, space.size)
    }
    groups: dict[tuple[str, int, int], list[Option]] = {}
    for option in every_plan(request):
        if option.fits(request):
            key = (option.schedule, option.num_microbatches, option.num_devices)
            groups.setdefault(key, []).append(option)
    for (schedule, count, stages), options in groups.items():
        costs = cut_costs(request, space, request.batch_size // count)
        problem = PartitionProblem(costs, schedule, count, stages, "none")
        yield Case(problem, [(_cuts(option, cut_of), option.step_time_s) for option in options])


def _cuts(option: Option, cut_of: dict[frozenset[str], int]) -> tuple[int, ...]:
    fronts = [frozenset().union(*option.stages[: s + 1]) for s in range(len(option.stages))]
    return tuple(cut_of[front] for front in fronts)


def bounds_hold(case: Case, below_s: float) -> None:
    """Tables and nodes for partitions of at most `below_s` are not above any completion that is."""
    front = front_bounds(case.problem, lambda: False, below_s)
    search = StepTimeSearch(case.problem, lambda: False, below_s)
    search._front = front
    for cuts, step_s in case.partitions:
        if step_s <= below_s:
            assert front.root_s <= step_s * SLACK
            tables_hold(case.problem, front, cuts, step_s)
            nodes_hold(search, cuts, step_s)


def tables_hold(problem: PartitionProblem, front: FrontBounds, cuts: tuple[int, ...], step_s: float) -> None:
    """The entries for every front of the partition."""
    costs = problem.costs
    count = problem.num_microbatches
    way_s = spacing_s = turn_s = 0.0
    for stage, (inner, outer) in enumerate(pairwise((0, *cuts))):
        forward = float(costs.forward_s[outer] - costs.forward_s[inner])
        link_s = float(problem.boundary_s(stage - 1)[inner])
        backward = float(costs.backward_s[outer] - costs.backward_s[inner])
        held = min(problem.in_flight(problem.num_stages - 1 - stage), count)
        way_s += link_s
        spacing_s = max(spacing_s, forward, link_s)
        turn_s = max(turn_s, (count - 1) * backward + (count - held) * forward)
        around_s = float(costs.work_s[outer]) + costs.directions * way_s
        known = front.fronts[stage + 1]
        assert known.hops_s[outer] <= way_s * SLACK
        assert known.lead_s[outer] + known.tail_s[outer] <= around_s * SLACK
        assert front.spacing_s[stage + 1][outer] <= spacing_s * SLACK
        assert front.turn_s[stage + 1][outer] <= turn_s * SLACK
        assert front.load_s[stage + 1][outer] <= step_s * SLACK


def nodes_hold(search: StepTimeSearch, cuts: tuple[int, ...], step_s: float) -> None:
    """The nodes that fix the last stages of the partition; the whole of it is replayed exactly."""
    backwards = [*reversed((0, *cuts))]
    for depth in range(2, len(backwards)):
        node = np.array([backwards[:depth]])
        assert search._bound(node, len(backwards) - depth)[0] <= step_s * SLACK
    assert search._bound(np.array([backwards]), 0)[0] == pytest.approx(step_s, rel=RELATIVE)


def test_no_bound_is_above_any_completion():
    tried = 0

    @settings(reproducible, max_examples=240)
    @given(
        st.one_of(
            requests(layers=(2, 6), devices=(2, 5), objective="step-time", schedules=PIPELINES),
            requests(layers=(2, 6), devices=(2, 5), schedules=PIPELINES, microbatch_sizes=(1,)),
            tight_requests(schedules=PIPELINES),
        ),
        st.sampled_from((inf, 1.5, 1.0)),
    )
    def try_one(request: PlanRequest, slack: float) -> None:
        nonlocal tried
        for case in cases(request):
            tried += case.problem.num_stages > 1
            balanced_bound_holds(case)
            bounds_hold(case, inf if slack == inf else case.least_s * slack * SLACK)
            search_from_nothing_finds_the_least(case)

    try_one()
    assert tried >= 1000


def search_from_nothing_finds_the_least(case: Case) -> None:
    """Whatever was found before, or not."""
    search = StepTimeSearch(case.problem, lambda: False)
    search.bound()
    search.prove(inf)
    assert search.best is not None
    assert search.best.value_s == pytest.approx(case.least_s, rel=RELATIVE)
    assert search.lower_bound_s == pytest.approx(case.least_s, rel=10 * RELATIVE)


def balanced_bound_holds(case: Case) -> None:
    """The bound before any partition is looked at."""
    problem, costs = case.problem, case.problem.costs
    bound_s = balanced_bound_s(
        float(costs.work_s[-1]), costs.largest_layer_s, problem.num_stages, problem.num_microbatches
    )
    assert bound_s <= case.least_s * SLACK


@settings(reproducible, max_examples=60)
@given(st.one_of(requests(layers=(3, 7), devices=(2, 4)), tight_requests()), st.integers(0, 40))
def test_a_search_stopped_anywhere_claims_no_more_than_is_true(request, looks):
    options = [option for option in every_plan(request) if option.fits(request)]
    assume(options)
    least = min(option.objective_s(request) for option in options)
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

    assert all(bound_s <= least * SLACK for bound_s in told)
    assert (found.proof.lower_bound_s or 0.0) <= least * SLACK
    assert found.prediction is not None
    assert found.prediction.step_time_s >= least / SLACK
    if found.status == "optimal":
        assert found.prediction.step_time_s <= least * SLACK
