"""Asynchronous 1F1B: the period and its closed form, weight versions, and what a plan without a flush cannot hold."""

from __future__ import annotations

import pytest

from bapipe.check import check
from bapipe.errors import InvalidInputError
from bapipe.no_flush import in_a_row
from bapipe.plan import Plan
from bapipe.problem import Link, TiedParameters
from bapipe.schedules import in_flight, weight_versions
from bapipe.simulator import drawn, simulate
from bapipe.timeline import html_timeline
from judges.endless import cycle_period_s, many
from judges.general import Judge
from judges.instances import cluster, filled, layer, make_plan, request

GRID = [(n, m) for n in range(1, 9) for m in range(1, 21)]


def pipedream(n, m, send_s=0.0, forward_s=1.0, backward_s=2.0, memory_bandwidth=None, **fields) -> Plan:
    """Equal stages of 40 bytes of parameters, a stash of 100 bytes, and activations of 8."""
    sizes = {"parameter_bytes": 40, "output_bytes_per_sample": 8.0, "stash_bytes_per_sample": 100.0}
    layers = [layer(f"l{k}", forward_s, backward_s, **sizes) for k in range(n)]
    link = Link(bandwidth_bytes_per_s=8.0 / send_s if send_s else None)
    devices = cluster(n, link, memory_bandwidth_bytes_per_s=memory_bandwidth)
    stages = [[f"l{k}"] for k in range(n)]
    asked = request(layers, devices, m, **fields)
    return make_plan(asked, stages, "pipedream", m, weight_versions=weight_versions("pipedream", n))


@pytest.mark.parametrize("send_s", [0.0, 1.0])
def test_the_period_of_equal_stages(send_s):
    """M·(T + 2C(N-1)/N): over free links every device is always busy; a round trip brings N micro-batches."""
    for n, m in GRID:
        found = pipedream(n, m, send_s).prediction
        assert found.period_s == pytest.approx(m * (3.0 + 2 * send_s * (n - 1) / n), rel=1e-12)
        if not send_s:
            assert found.step_time_s == (m + n - 1) * 3.0


def test_a_stage_keeps_as_many_versions_as_micro_batches_in_flight():
    for n, m in GRID:
        versions = weight_versions("pipedream", n)
        assert versions == tuple(n - s for s in range(n))
        assert [in_flight("pipedream", s, n, m) for s in range(n)] == list(versions)


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_memory_holds_every_version_and_the_stashes_of_many_steps_in_a_row(m):
    state = 40 + 80  # gradients and the optimizer's 8 bytes for each of 10 parameters
    expected = [
        *(state + 4 * 40 + 4 * 100 + 8 * 2 * 2, state + 3 * 40 + 3 * 100 + 8 * (4 + 2 + 2 + 2)),
        *(state + 2 * 40 + 2 * 100 + 8 * (3 + 2 + 2 + 2), state + 40 + 100 + 8 * (2 + 2)),
    ]
    assert simulate(pipedream(4, m)).peak_memory_bytes == tuple(expected)


def test_what_fits_with_a_flush_may_not_fit_with_every_version():
    plan = pipedream(4, 8)
    kinds = tuple(kind.model_copy(update={"memory_bytes": 650}) for kind in plan.request.cluster.kinds)
    asked = plan.request.model_copy(update={"cluster": plan.request.cluster.model_copy(update={"kinds": kinds})})
    flushed = make_plan(asked, [[f"l{k}"] for k in range(4)], "1f1b", 8)
    assert check(flushed) == []
    faults = check(filled(plan.model_copy(update={"request": asked})))
    assert [(fault.code, fault.pointer) for fault in faults] == [("out_of_memory", "/stages/0/devices/0")]
    assert faults[0].detail.startswith("712 bytes")


def test_weights_are_updated_after_every_backward():
    plan = pipedream(2, 3, memory_bandwidth=140.0)  # an update moves 2 · (40 + 40 + 80) - 40 bytes
    simulation = simulate(plan)
    assert simulation.step_time_s == 4 * 3.0 + 3 * 2.0
    assert simulation.period_s == 3 * 5.0
    assert simulation.busy_s == (3 * 5.0, 3 * 5.0)
    assert simulation.operations.kind[-5:] == ("B", "O", "F", "B", "O")
    assert plan.pace_s == simulation.period_s
    assert plan.prediction.samples_per_s == 3 / 15.0


def test_more_versions_hide_the_transfers():
    plan = pipedream(4, 8, send_s=0.5)
    schedule = plan.schedule.model_copy(update={"name": "custom", "weight_versions": (7, 5, 3, 1)})
    eager = many(plan.model_copy(update={"schedule": schedule}), 1)
    assert simulate(plan).period_s == 8 * (3.0 + 2 * 0.5 * 3 / 4)
    assert simulate(eager).period_s == cycle_period_s(eager) == 8 * 3.0
    assert check(filled(eager)) == []


def test_steps_in_a_row_are_a_step_of_more_micro_batches():
    plan = pipedream(3, 2, send_s=0.5)
    assert in_a_row(plan, 4) == many(plan, 4)
    simulation, judge = simulate(in_a_row(plan, 4)), Judge(many(plan, 4))
    assert simulation.step_time_s == judge.step_time_s
    assert simulation.peak_memory_bytes == simulate(plan).peak_memory_bytes
    assert simulation.period_s == pytest.approx(4 * simulate(plan).period_s, rel=1e-12)


def test_pictures_show_several_steps_in_a_row():
    plan = pipedream(2, 3, memory_bandwidth=140.0)
    simulation = simulate(plan)
    shown = drawn(plan, simulation)
    assert max(shown.operations.microbatch) == 5
    assert shown.peak_memory_bytes == simulation.peak_memory_bytes
    page = html_timeline(plan, simulation)
    assert "there is no flush" in page
    assert f'"span_s":{shown.step_time_s}' in page


def changed(plan: Plan, **fields) -> Plan:
    return plan.model_copy(update={"schedule": plan.schedule.model_copy(update=fields)})


def with_stage(plan: Plan, number: int, **fields) -> Plan:
    stages = list(plan.stages)
    stages[number] = stages[number].model_copy(update=fields)
    return plan.model_copy(update={"stages": tuple(stages)})


def with_profile(plan: Plan, **fields) -> Plan:
    profile = plan.request.profile.model_copy(update=fields)
    return plan.model_copy(update={"request": plan.request.model_copy(update={"profile": profile})})


def with_order(plan: Plan, number: int, *order: str) -> Plan:
    orders = list(plan.schedule.orders)
    orders[number] = order
    return changed(plan, orders=tuple(orders))


TIED = (TiedParameters(layers=("l0", "l2"), parameter_bytes=8),)
PLAN = pipedream(3, 4)
FORWARDS_FIRST = [f"0{kind}{k}" for kind in "FB" for k in range(4)]
ILLEGAL = {
    "no version": (changed(PLAN, weight_versions=(3, 2)), "wrong_length", "2 numbers for 3 stages"),
    "growing": (changed(PLAN, weight_versions=(1, 2, 1)), "wrong_versions", "stage 1 keeps 2 versions"),
    "far too many": (
        with_order(changed(PLAN, weight_versions=(10**9, 2, 1), name="custom"), 0, *FORWARDS_FIRST),
        "too_large",
        "1000000000 versions; at most 4096",
    ),
    "inference": (
        PLAN.model_copy(update={"request": PLAN.request.model_copy(update={"task": "inference"})}),
        "wrong_versions",
        "inference updates no weights",
    ),
    "replicas": (with_stage(PLAN, 1, devices=("d1", "d9")), "not_without_flush", "a stage has one device"),
    "two stages": (with_stage(PLAN, 1, devices=("d0",)), "not_without_flush", "a device has one stage"),
    "engines": (with_stage(PLAN, 1, forward_share=0.5), "not_without_flush", "no device is split"),
    "tied": (with_profile(PLAN, tied_parameters=TIED), "not_without_flush", "tied parameters on several stages"),
    "too late": (
        with_order(changed(PLAN, name="custom"), 2, "2F0", "2F1", "2B0", "2B1", "2F2", "2B2", "2F3", "2B3"),
        "not_without_flush",
        "2F1 where 2B0 is due: without a flush, a stage with 1 weight versions executes 0 forwards",
    ),
    "out of turn": (
        with_order(changed(PLAN, name="custom"), 2, "2F1", "2B1", "2F0", "2B0", "2F2", "2B2", "2F3", "2B3"),
        "not_without_flush",
        "2F1 where 2F0 is due",
    ),
    "missing": (with_order(PLAN, 2, "2F0", "2B0", "2F1", "2B1", "2F2", "2B2"), "missing_operation", "2F3, 2B3"),
    "a name that flushes": (changed(PLAN, name="1f1b"), "wrong_schedule", "1f1b has no weight_versions"),
    "a flush": (changed(PLAN, weight_versions=None), "wrong_schedule", "pipedream has [3, 2, 1] weight_versions"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_cannot_be_without_a_flush_is_refused_with_its_place(name):
    plan, code, said = ILLEGAL[name]
    faults = [fault for fault in check(plan) if fault.code == code]
    assert any(said in fault.detail for fault in faults), check(plan)
    assert all(fault.pointer.startswith(("/schedule", "/stages", "/request")) for fault in faults)


def test_a_split_backward_is_refused():
    order = [f"{kind}{k}" for k in range(4) for kind in ("2F", "2I", "2W")]
    with pytest.raises(InvalidInputError) as error:
        simulate(with_order(changed(PLAN, name="custom"), 2, *order))
    assert "a forward and a backward for each micro-batch" in error.value.faults[0].detail


def test_a_deadlock_of_later_steps_points_at_the_versions():
    plan = pipedream(2, 2)
    links = plan.request.cluster.links.model_copy(update={"within_host": Link(mode="blocking", latency_s=0.5)})
    asked = plan.request.model_copy(update={"cluster": plan.request.cluster.model_copy(update={"links": links})})
    schedule = plan.schedule.model_copy(update={"name": "custom", "weight_versions": (4, 2)})
    eager = many(plan.model_copy(update={"request": asked, "schedule": schedule}), 1)
    with pytest.raises(InvalidInputError) as error:
        simulate(eager)
    assert {(fault.code, fault.pointer) for fault in error.value.faults} == {("deadlock", "/schedule/weight_versions")}
