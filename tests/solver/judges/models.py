"""What a plan for the least bottleneck must be, whichever solver it is from."""

from __future__ import annotations

import pytest

from bapipe.check import check
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import PlanRequest
from judges.bottleneck import RELATIVE, Placement, best_placements
from judges.brute_force import MAX_PLANS

MODELS = ("cp-sat", "milp")
EVERYONE = ("dp", *MODELS)
TOLERANCE = {"milp": 1e-6}
"""Relative: what the proof of a float solver may be off by; others prove to `RELATIVE`."""


def solved(request: PlanRequest, solver: str) -> Plan:
    """The plan of one solver."""
    return plan(request.model_copy(update={"solver": solver}))


def judged(request: PlanRequest, placements: list[Placement], solvers: tuple[str, ...]) -> None:
    """The plan of each solver is an optimum of the placements that fit, says so, and is priced as it is."""
    assert len(placements) <= MAX_PLANS
    fitting = [placement for placement in placements if placement.fits(request)]
    for solver in solvers:
        found = solved(request, solver)
        if not fitting:
            assert found.status == "infeasible", solver
            continue
        least_s = min(placement.objective_s for placement in fitting)
        chosen = chosen_placement(found, fitting)
        tolerance = TOLERANCE.get(solver, RELATIVE)
        assert found.status == "optimal", solver
        assert chosen.objective_s == pytest.approx(least_s, rel=tolerance), solver
        bound_s = found.proof.lower_bound_s
        assert bound_s is not None
        assert bound_s * chosen.num_microbatches == pytest.approx(least_s, rel=tolerance), solver
        priced_as(found, chosen)
        assert check(found) == []
        if "dp" in solvers:
            as_good = [p for p in fitting if p.objective_s <= least_s * (1 + RELATIVE)]
            assert preference(chosen) == min(map(preference, as_good)), solver


def preference(placement: Placement) -> tuple[int, float]:
    """Of plans as good: no idle device, then the least peak memory; where dynamic programming can tell."""
    return -len(placement.stages), max(placement.peak_bytes)


def chosen_placement(found: Plan, placements: list[Placement]) -> Placement:
    """The one of `placements` that `found` is."""
    assert found.schedule is not None
    devices = [device for stage in found.stages for device in stage.devices]
    assert devices == [device.id for device in found.request.cluster.devices[: len(devices)]]
    stages = tuple(frozenset(stage.layers) for stage in found.stages)
    key = found.schedule.name, found.schedule.num_microbatches, stages
    matching = [p for p in placements if (p.schedule, p.num_microbatches, p.stages) == key]
    assert len(matching) == 1, "the plan is none of those that brute force allows"
    return matching[0]


def priced_as(found: Plan, placement: Placement) -> None:
    """Loads are those of brute force; bytes exactly."""
    assert [stage.load_s for stage in found.stages] == pytest.approx(list(placement.loads_s), rel=RELATIVE)
    assert tuple(stage.peak_memory_bytes for stage in found.stages) == placement.peak_bytes


def binds(request: PlanRequest, placements: list[Placement]) -> bool:
    """Whether something fits, but nothing that is best without a limit, on a problem that is not tiny."""
    tiny = len(request.profile.layers) < 6 or len(request.cluster.devices) < 3
    best = best_placements(placements)
    return not tiny and any(p.fits(request) for p in placements) and not any(p.fits(request) for p in best)
