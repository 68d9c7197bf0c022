"""Plans of every kind, against an independent replay: times, bytes, transfers and reductions."""

from __future__ import annotations

from collections import Counter

import pytest

from bapipe.check import check
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.simulator import simulate
from judges.endless import cycle_period_s, is_linear, many
from judges.general import Judge
from judges.instances import filled
from judges.plans import FEATURES, random_plan

BLOCKS, PLANS = 16, 80
SHOWN_AGAIN = 4
"""One plan in so many is also checked with its figures filled in."""

ENOUGH = 50

LONG, CYCLE = 48, 12
"""Micro-batches of a long run, and after how many its rhythm is back: a multiple of 1 to 4 stages."""


def agreed(plan: Plan) -> bool:
    """Compares simulator and judge; False where both find a deadlock."""
    try:
        simulation = simulate(plan)
    except InvalidInputError as error:
        if {fault.code for fault in error.faults} != {"deadlock"}:
            raise
        later = any(fault.pointer == "/schedule/weight_versions" for fault in error.faults)
        with pytest.raises(ValueError, match="no start times"):
            Judge(many(plan, -(-9 // plan.schedule.num_microbatches)) if later else plan)  # type: ignore[union-attr]
        return False
    judge = Judge(plan)
    done = simulation.operations
    rows = zip(done.stage, done.kind, done.microbatch, done.start_s, strict=True)
    starts = {op: start for op, start in judge.starts.items() if op[1] != "O" or judge.cost[op]}
    assert {(s, kind, k): start for s, kind, k, start in rows} == pytest.approx(starts, rel=1e-9, abs=1e-9)
    assert simulation.step_time_s == pytest.approx(judge.step_time_s, rel=1e-9, abs=1e-9)
    assert dict(zip(simulation.devices, simulation.peak_memory_bytes, strict=True)) == judge.peaks
    assert [bucket.start_s for bucket in simulation.reductions] == pytest.approx(judge.reduced, rel=1e-9, abs=1e-9)
    assert sorted(simulation.transfers.start_s) == pytest.approx(sorted(judge.sent.values()), rel=1e-9, abs=1e-9)
    if judge.versions:
        assert simulation.period_s == pytest.approx(endless_period_s(plan), rel=1e-9)
    return True


def endless_period_s(plan: Plan) -> float:
    """By the cycles of what awaits what or, where links hold devices, meet or stream, by a long run."""
    if is_linear(plan):
        return cycle_period_s(plan)
    assert plan.schedule is not None
    judge = Judge(many(plan, -(-LONG // plan.schedule.num_microbatches)))
    end = judge.m - CYCLE
    late, early = judge.starts[0, "B", end], judge.starts[0, "B", end - CYCLE]
    return plan.schedule.num_microbatches * (late - early) / CYCLE


@pytest.mark.parametrize("block", range(BLOCKS))
def test_an_independent_replay_agrees_on_every_kind_of_plan(block: int) -> None:
    for seed in range(block * PLANS, (block + 1) * PLANS):
        plan, _ = random_plan(seed)
        if agreed(plan) and seed % SHOWN_AGAIN == 0:
            assert check(filled(plan)) == [], seed


def test_every_feature_is_in_enough_of_the_plans() -> None:
    counts: Counter[str] = Counter()
    executed = 0
    for seed in range(BLOCKS * PLANS):
        plan, features = random_plan(seed)
        try:
            simulate(plan)
        except InvalidInputError:
            continue
        executed += 1
        counts.update(features)
    assert executed >= 500
    assert {feature: counts[feature] for feature in FEATURES if counts[feature] < ENOUGH} == {}
