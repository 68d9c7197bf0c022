"""No bound is above what the independent judge finds, over links and devices of every mode; and a bound that is the
least too high would be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, pairwise
from math import inf
from typing import Any

import numpy as np
import pytest

from bapipe import bounds
from bapipe.bounds import balanced_bound_s, front_bounds
from bapipe.cost.cut_costs import cut_costs
from bapipe.cuts import cut_space
from bapipe.formulations.base import PartitionProblem
from bapipe.formulations.step_time import StepTimeSearch
from judges.brute_force import RELATIVE
from judges.modes import MODES, every_plan, random_request

SLACK = 1 + RELATIVE
CASES = 1_000
"""Plans of unequal stages held against the bounds, of each mode."""


@dataclass(frozen=True)
class Case:
    """A partition as stages of a problem (inner cut plus the number of cuts times that of its share), and its time."""

    stages: tuple[int, ...]
    step_s: float


def cases_of(seed: int, mode: str) -> Iterator[tuple[PartitionProblem, list[Case]]]:
    """Every problem of a random request, with all its partitions into two stages or more."""
    request = random_request(seed, mode)
    space = cut_space(request.profile, request.cuts)
    layers = request.profile.layers
    cut_of = {
        frozenset(layers[space.graph.layers[k]].id for k in space.stage_positions(0, cut)): cut
        for cut in range(1, space.size)
    }
    found: dict[tuple[str, int, int], tuple[PartitionProblem, list[Case]]] = {}
    for option in every_plan(request):
        schedule, stages = option.plan.schedule, option.plan.stages
        assert schedule is not None
        if len(stages) < 2:
            continue
        key = (schedule.name, schedule.num_microbatches, len(stages))
        if key not in found:
            costs = cut_costs(request, space, schedule.microbatch_size)
            found[key] = PartitionProblem(costs, *key, "none"), []  # type: ignore[arg-type]
        problem, cases = found[key]
        fronts = [frozenset(name for stage in stages[: s + 1] for name in stage.layers) for s in range(len(stages))]
        cuts = tuple(cut_of[front] for front in fronts)
        cases.append(Case(_stages(problem, cuts, [stage.forward_share for stage in stages]), option.step_time_s))
    yield from found.values()


def _stages(problem: PartitionProblem, cuts: tuple[int, ...], shares: list[float | None]) -> tuple[int, ...]:
    inner, size = (0, *cuts[:-1]), problem.costs.space.size
    if shares[0] is None:
        return inner
    numbers = []
    for stage, (share, *pair) in enumerate(zip(shares, inner, cuts, strict=True)):
        edges = [np.array([cut]) for cut in pair]
        balanced = problem.part(*edges, stage, 0)[0]
        numbers.append(0 if share == pytest.approx(balanced) else problem.shares.index(share))
    return tuple(cut + size * number for cut, number in zip(inner, numbers, strict=True))


def violations(problem: PartitionProblem, cases: list[Case]) -> int:
    """How many bounds are above the time of a partition that they are said to bound."""
    least_s = min(case.step_s for case in cases)
    work_s, largest_s = float(problem.costs.work_s[-1]), problem.costs.largest_layer_s
    sizes = problem.num_stages, problem.num_microbatches
    wrong = int(balanced_bound_s(work_s, largest_s, *sizes, problem.fraction) > least_s * SLACK)
    for below_s in (inf, least_s * SLACK):
        search = StepTimeSearch(problem, lambda: False, below_s)
        search._front = front_bounds(problem, lambda: False, below_s)
        for case in cases:
            if case.step_s <= below_s:
                wrong += sum(bound_s > case.step_s * SLACK for bound_s in _bounds(search, case))
                wrong += not _exact(search, case)
    return wrong


def _bounds(search: StepTimeSearch, case: Case) -> Iterator[float]:
    """Of every stage by itself, in the tables, and with those behind it in a node."""
    problem, front = search.problem, search._front
    size = problem.costs.space.size
    rows = [*case.stages, size - 1]
    for stage, (code, following) in enumerate(pairwise(rows)):
        inner, outer = np.array([code % size]), np.array([following % size])
        for known in (None, front.fronts[stage]):
            yield float(bounds.load_bound_s(problem, known, inner, outer, stage, code // size)[0])
            yield float(bounds.load_bound_s(problem, known, inner, outer, stage, None)[0])
        yield float(front.load_s[stage + 1][following % size])
        if np.isfinite(front.load_s[stage][inner[0]]):
            yield float(search._bound(np.array([rows[: stage - 1 if stage else None : -1]]), stage)[0])


def _exact(search: StepTimeSearch, case: Case) -> bool:
    """Whether the replay of the whole is what the judge says, where that is claimed."""
    size = search.problem.costs.space.size
    replayed_s = float(search._bound(np.array([[size - 1, *reversed(case.stages)]]), 0)[0])
    return not search.problem.costs.exact or abs(replayed_s - case.step_s) <= RELATIVE * case.step_s


@cache
def collected(mode: str, wanted: int) -> list[tuple[PartitionProblem, list[Case]]]:
    """Problems with so many partitions in all."""
    found: list[tuple[PartitionProblem, list[Case]]] = []
    total = 0
    for seed in count():
        for problem, cases in cases_of(seed, mode):
            found.append((problem, cases[: max(1, wanted // 10)]))
            total += len(found[-1][1])
        if total >= wanted:
            return found
    raise AssertionError


@pytest.mark.parametrize("mode", MODES)
def test_no_bound_is_above_what_any_partition_takes(mode: str) -> None:
    assert sum(violations(problem, cases) for problem, cases in collected(mode, CASES)) == 0


def _whole_transfers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionProblem, "hop_s", PartitionProblem.boundary_s)


def _whole_operations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionProblem, "fraction", 1.0)


def _whole_operations_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionProblem, "fraction_behind", lambda self, position: 1.0)


def _one_stop_too_many(patch: pytest.MonkeyPatch) -> None:
    stops = PartitionProblem.stops
    patch.setattr(PartitionProblem, "stops", lambda self, position: (found := stops(self, position)) and found + 1)


def _a_quarter_each(patch: pytest.MonkeyPatch) -> None:
    """Split devices that waste half of themselves."""

    def slow(self: PartitionProblem, inner: Any, outer: Any, stage: int, share: int) -> Any:
        return 4 * self.forward_s(inner, outer, stage), 4 * self.backward_s(inner, outer, stage)

    patch.setattr(PartitionProblem, "split_s", slow)


def _higher_loads(patch: pytest.MonkeyPatch) -> None:
    load_bound_s = bounds.load_bound_s

    def higher(*args: Any) -> Any:
        return load_bound_s(*args) * 1.01

    patch.setattr(bounds, "load_bound_s", higher)


def _later_arrivals(patch: pytest.MonkeyPatch) -> None:
    upstream = StepTimeSearch._upstream

    def later(self: StepTimeSearch, cut: Any, stage: int) -> Any:
        found = upstream(self, cut, stage)
        return replace(found, first_arrival_s=found.first_arrival_s * 1.01)

    patch.setattr(StepTimeSearch, "_upstream", later)


def _more_behind(patch: pytest.MonkeyPatch) -> None:
    behind = StepTimeSearch._behind_bound
    patch.setattr(StepTimeSearch, "_behind_bound", lambda self, *args: behind(self, *args) * 1.01)


OWN = (
    ("streaming 4", _whole_transfers),
    ("streaming 4", _whole_operations),
    ("streaming 4", _whole_operations_behind),
    ("split devices", _whole_operations),
    ("split devices", _a_quarter_each),
    ("blocking fused", _one_stop_too_many),
    ("blocking ordered", _one_stop_too_many),
)
EVERYWHERE = [(mode, mutate) for mode in MODES for mutate in (_higher_loads, _later_arrivals, _more_behind)]


@pytest.mark.parametrize(("mode", "mutate"), [*OWN, *EVERYWHERE])
def test_a_bound_that_is_too_high_is_noticed(
    mode: str, mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert any(violations(*each) for each in collected(mode, CASES))
