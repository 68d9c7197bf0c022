from itertools import pairwise

import pytest
from hypothesis import given, settings

from bapipe.errors import InvalidInputError
from bapipe.problem import Link
from bapipe.simulator import simulate
from judges.chains import instances
from judges.instances import cluster, even_request, layer, make_plan, request
from judges.replay import judge


@settings(max_examples=400, deadline=None)
@given(instances())
def test_an_independent_replay_finds_the_same_times_and_bytes(instance):
    asked, stages, name, count, all_reduce = instance
    replicas = len(asked.cluster.devices)
    verdict = judge(asked, stages, name, count, replicas=replicas, all_reduce=all_reduce)
    simulation = simulate(make_plan(asked, stages, name, count, all_reduce=all_reduce))
    assert simulation.step_time_s == pytest.approx(verdict.step_time_s, rel=1e-9, abs=1e-9)
    assert list(simulation.peak_memory_bytes) == verdict.peak_bytes
    columns = simulation.operations
    found = {
        (d, kind, k): start
        for d, kind, k, start in zip(columns.device, columns.kind, columns.microbatch, columns.start_s, strict=True)
    }
    expected = {(d, *op): start for d, starts in enumerate(verdict.starts) for op, start in starts.items()}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(instances())
def test_accounts_balance(instance):
    asked, stages, name, count, all_reduce = instance
    simulation = simulate(make_plan(asked, stages, name, count, all_reduce=all_reduce))
    columns, step_s = simulation.operations, simulation.step_time_s
    for d in range(len(simulation.devices)):
        mine = [k for k, device in enumerate(columns.device) if device == d]
        compute_s = sum(columns.end_s[k] - columns.start_s[k] for k in mine)
        update_s = simulation.optimizer_end_s[d] - simulation.optimizer_start_s[d]
        assert simulation.busy_s[d] == pytest.approx(compute_s + update_s, abs=1e-9)
        assert all(columns.end_s[a] <= columns.start_s[b] + 1e-12 for a, b in pairwise(mine))
        if mine:
            span_s = columns.end_s[mine[-1]] - columns.start_s[mine[0]]
            assert simulation.span_bubble_s[d] == pytest.approx(span_s - compute_s, abs=1e-9)
    idle_s = len(simulation.devices) * step_s - sum(simulation.busy_s)
    assert simulation.bubble_fraction * len(simulation.devices) * step_s == pytest.approx(idle_s, abs=1e-8)
    assert max((*columns.end_s, *simulation.transfers.end_s, *simulation.optimizer_end_s)) == pytest.approx(step_s)


def test_transfers_and_links_of_a_small_plan():
    asked = even_request(2, 2)
    layers = tuple(item.model_copy(update={"output_bytes_per_sample": 4.0}) for item in asked.profile.layers)
    asked = request(layers, cluster(2, Link(bandwidth_bytes_per_s=8.0)), 2)
    simulation = simulate(make_plan(asked, [["l0"], ["l1"]], "1f1b", 2))
    transfers = simulation.transfers
    assert transfers.kind == ("F", "F", "B", "B")
    assert (transfers.source, transfers.target) == ((0, 0, 1, 1), (1, 1, 0, 0))
    assert transfers.start_s == (1.0, 2.0, 4.5, 7.5)
    assert transfers.end_s == (1.5, 2.5, 5.0, 8.0)
    assert [(use.source, use.target, use.busy_s, use.size_bytes) for use in simulation.links] == [
        ("d0", "d1", 1.0, 8.0),
        ("d1", "d0", 1.0, 8.0),
    ]


def test_overlapped_all_reduce_starts_while_the_last_backward_runs():
    layers = [layer("a", 1.0, 4.0, parameter_bytes=8), layer("b", 1.0, 1.0, parameter_bytes=8)]
    asked = request(layers, cluster(2, Link(bandwidth_bytes_per_s=4.0)), 2, gradient_bucket_bytes=8)
    overlapped = simulate(make_plan(asked, [["a", "b"]], "data-parallel", 2))
    assert [(r.start_s, r.end_s) for r in overlapped.reductions] == [(3.0, 5.0), (7.0, 9.0)]
    assert overlapped.step_time_s == overlapped.period_s == 9.0
    blocking = simulate(make_plan(asked, [["a", "b"]], "data-parallel", 2, all_reduce="blocking"))
    assert [(r.start_s, r.end_s) for r in blocking.reductions] == [(7.0, 9.0), (9.0, 11.0)]
    assert [(use.source, use.target, use.busy_s, use.size_bytes) for use in blocking.links] == [
        ("d0", "d1", 4.0, 16.0),
        ("d1", "d0", 4.0, 16.0),
    ]


def test_a_bucket_waits_for_the_replica_with_most_microbatches():
    asked = request([layer("a", parameter_bytes=8)], cluster(2, Link(bandwidth_bytes_per_s=8.0)), 3)
    simulation = simulate(make_plan(asked, [["a"]], "data-parallel", 3))
    assert [(r.start_s, r.end_s) for r in simulation.reductions] == [(6.0, 7.0)]


def test_equal_stages_idle_the_textbook_share():
    simulation = simulate(make_plan(even_request(4, 8), [[f"l{k}"] for k in range(4)], "1f1b", 8))
    assert simulation.bubble_fraction == pytest.approx(3 / 11)
    prediction = simulation.prediction(even_request(4, 8))
    assert (prediction.step_time_s, prediction.bottleneck_s, prediction.samples_per_s) == (33.0, 3.0, 8 / 33)


def test_a_model_without_times_has_no_throughput_to_report():
    asked = request([layer("a", 0.0, 0.0)], 1, 1)
    prediction = simulate(make_plan(asked, [["a"]], "gpipe", 1)).prediction(asked)
    assert (prediction.step_time_s, prediction.samples_per_s, prediction.bubble_fraction) == (0.0, 0.0, 0.0)


def plan_with_orders(*orders, task="training"):
    plan = make_plan(even_request(2, 2, task=task), [["l0"], ["l1"]], "1f1b", 2)
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": tuple(orders)})
    return plan.model_copy(update={"schedule": schedule})


GOOD = (("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1"))


@pytest.mark.parametrize(
    ("first", "code", "pointer", "named"),
    [
        (("0F0", "0B0", "0F1", "0B1", "0F0"), "duplicate_operation", "/schedule/orders/0/4", "0F0"),
        (("0F0", "0B0", "0F1"), "missing_operation", "/schedule/orders/0", "0B1"),
        (("0F0", "0B0", "0F1", "0B1", "1F0"), "misplaced_operation", "/schedule/orders/0/4", "1F0"),
        (("0F0", "0B0", "0F1", "0B1", "0F2"), "unknown_operation", "/schedule/orders/0/4", "0F2"),
        (("0F0", "0B0", "0F1", "0B1", "hello"), "unknown_operation", "/schedule/orders/0/4", "hello"),
        (("0F0", "0B0", "0F1", "0B1", "0F00"), "unknown_operation", "/schedule/orders/0/4", "0F00"),
        (("0F0", "0B0", "0F1", "0B1", "0W1"), "mixed_backward", "/schedule/orders/0/4", "0W1"),
        (("0F0", "0R0", "0B0", "0F1", "0B1"), "unknown_operation", "/schedule/orders/0/1", "0R0"),
        (("0F0", "0F1", "0I0", "0W0", "0I1", "0W1"), "missing_split", "/schedule/orders/0/2", "0I0"),
        (("0B0", "0F0", "0F1", "0B1"), "deadlock", "/schedule/orders/0/0", "0B0"),
    ],
)
def test_an_order_that_cannot_be_executed_is_refused_by_name_and_place(first, code, pointer, named):
    with pytest.raises(InvalidInputError) as error:
        simulate(plan_with_orders(first, GOOD[1]))
    fault = error.value.faults[0]
    assert (fault.code, fault.pointer) == (code, pointer)
    assert named in fault.detail


def test_inference_has_no_backward():
    with pytest.raises(InvalidInputError) as error:
        simulate(plan_with_orders(("0F0", "0F1", "0B0"), ("1F0", "1F1"), task="inference"))
    assert [(f.code, f.pointer) for f in error.value.faults] == [("unknown_operation", "/schedule/orders/0/2")]


def test_every_fault_of_every_order_is_reported_at_once():
    with pytest.raises(InvalidInputError) as error:
        simulate(plan_with_orders(("0F0", "0F0", "x"), ("1F0",)))
    assert [(f.code, f.pointer) for f in error.value.faults] == [
        ("duplicate_operation", "/schedule/orders/0/1"),
        ("unknown_operation", "/schedule/orders/0/2"),
        ("missing_operation", "/schedule/orders/0"),
        ("missing_operation", "/schedule/orders/1"),
    ]


def test_an_operation_on_an_idle_device_or_the_wrong_replica_is_misplaced():
    idle = make_plan(request([layer("a")], 2, 1), [["a"]], "1f1b", 1)
    schedule = idle.schedule.model_copy(update={"orders": (*idle.schedule.orders[:1], ("0F0",))})
    with pytest.raises(InvalidInputError) as error:
        simulate(idle.model_copy(update={"schedule": schedule}))
    assert [(f.code, f.pointer) for f in error.value.faults] == [("misplaced_operation", "/schedule/orders/1/0")]

    replicas = make_plan(request([layer("a")], 2, 2), [["a"]], "data-parallel", 2)
    schedule = replicas.schedule.model_copy(update={"orders": replicas.schedule.orders[::-1]})
    with pytest.raises(InvalidInputError) as error:
        simulate(replicas.model_copy(update={"schedule": schedule}))
    assert {f.code for f in error.value.faults} == {"misplaced_operation", "missing_operation"}


def test_a_plan_without_stages_has_nothing_to_execute():
    plan = make_plan(even_request(2, 2), [["l0"], ["l1"]], "1f1b", 2)
    empty = plan.model_copy(update={"status": "infeasible", "stages": (), "schedule": None, "prediction": None})
    with pytest.raises(InvalidInputError) as error:
        simulate(empty)
    assert "nothing_to_execute" in {f.code for f in error.value.faults}
