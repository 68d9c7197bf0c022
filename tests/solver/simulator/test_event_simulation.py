"""The two ways to replay a plan agree where both apply, and the period is the rate of many steps in a row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from bapipe.errors import InvalidInputError
from bapipe.orders import read_orders
from bapipe.simulator import simulate
from bapipe.simulator.event_simulation import simulate_events
from bapipe.simulator.events import replay_events
from bapipe.simulator.workload import Workload
from judges.chains import instances
from judges.instances import make_plan
from judges.plans import random_plan


@settings(max_examples=100, deadline=None)
@given(instances())
def test_events_find_what_the_sweep_finds(instance):
    asked, stages, name, count, all_reduce = instance
    plan = make_plan(asked, stages, name, count, all_reduce=all_reduce)
    swept, stepped = simulate(plan), simulate_events(plan, plan.schedule)
    assert stepped.devices == swept.devices
    assert stepped.operations.kind == swept.operations.kind
    assert stepped.operations.start_s == pytest.approx(swept.operations.start_s, rel=1e-9, abs=1e-9)
    assert stepped.step_time_s == pytest.approx(swept.step_time_s, rel=1e-9, abs=1e-9)
    assert stepped.period_s == pytest.approx(swept.period_s, rel=1e-9, abs=1e-9)
    assert stepped.peak_memory_bytes == pytest.approx(swept.peak_memory_bytes, rel=1e-12)
    assert stepped.busy_s == pytest.approx(swept.busy_s, rel=1e-9, abs=1e-9)
    assert stepped.span_bubble_s == pytest.approx(swept.span_bubble_s, rel=1e-9, abs=1e-7)
    sent = [(use.source, use.target, use.busy_s, use.size_bytes) for use in stepped.links]
    expected = [(use.source, use.target, use.busy_s, use.size_bytes) for use in swept.links]
    assert [use[:2] for use in sorted(sent)] == [use[:2] for use in sorted(expected)]
    for found, wanted in zip(sorted(sent), sorted(expected), strict=True):
        assert found[2:] == pytest.approx(wanted[2:], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(0, 180, 3))
def test_the_period_of_any_plan_is_the_rate_of_many_steps_in_a_row(seed):
    plan, features = random_plan(seed)
    if "no flush" in features:
        return
    try:
        simulation = simulate(plan)
    except InvalidInputError:
        return
    orders, _ = read_orders(plan, plan.schedule)
    job = Workload(plan, plan.schedule, simulation.devices, orders).job()
    ends = []
    timeline = replay_events(job)
    for _ in range(80):
        timeline = replay_events(job, timeline.occupied)
        ends.append(max(timeline.optimizer_end_s))
    assert (ends[-1] - ends[19]) / 60 == pytest.approx(simulation.period_s, rel=1e-9)
