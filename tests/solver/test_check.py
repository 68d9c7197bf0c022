import pytest

from bapipe.check import check
from bapipe.errors import is_claim
from bapipe.problem import Edge, Link, Pin
from bapipe.schedules import placed_orders
from bapipe.simulator import simulate
from judges.instances import cluster, filled, layer, make_plan, request


def pairs(faults):
    return [(fault.code, fault.pointer) for fault in faults]


def plan_of(name="1f1b", stages=(("l0",), ("l1", "l2"), ("l3",)), count=4, **fields):
    layers = [layer(f"l{k}", parameter_bytes=40, output_bytes_per_sample=8.0) for k in range(4)]
    devices = cluster(3, Link(bandwidth_bytes_per_s=16.0), memory_bytes=10_000, reserved_bytes=10)
    return make_plan(request(layers, devices, 8, **fields), stages, name, count)


def changed(plan, **fields):
    return plan.model_copy(update=fields)


def with_request(plan, **fields):
    return changed(plan, request=changed(plan.request, **fields))


def with_profile(plan, **fields):
    return with_request(plan, profile=changed(plan.request.profile, **fields))


def with_stage(plan, number, **fields):
    stages = list(plan.stages)
    stages[number] = changed(stages[number], **fields)
    return changed(plan, stages=tuple(stages))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "1f1b-so"])
@pytest.mark.parametrize("task", ["training", "inference"])
def test_a_simulated_plan_has_no_faults(name, task):
    assert check(plan_of(name, task=task)) == []


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_simulated_data_parallel_plan_has_no_faults(count):
    assert check(plan_of("data-parallel", [["l0", "l1", "l2", "l3"]], count)) == []


def test_a_plan_that_says_infeasible_is_legal():
    plan = changed(plan_of(), status="infeasible", stages=(), schedule=None, prediction=None)
    assert check(plan) == []


def test_a_dropped_layer_is_named():
    faults = check(with_stage(plan_of(), 1, layers=("l1",)))
    assert pairs(faults) == [("missing_layer", "/stages")]
    assert "'l2'" in faults[0].detail


def test_a_layer_in_two_stages_is_refused():
    assert pairs(check(with_stage(plan_of(), 2, layers=("l3", "l1"))))[0] == ("duplicate_layer", "/stages/2/layers/1")


def test_unknown_layers_and_devices_are_dangling():
    plan = with_stage(with_stage(plan_of(), 0, layers=("l0", "lo")), 2, devices=("gpu",))
    assert pairs(check(plan)) == [
        ("dangling_reference", "/stages/0/layers/1"),
        ("dangling_reference", "/stages/2/devices/0"),
    ]


def test_an_edge_may_not_lead_to_an_earlier_stage():
    plan = with_stage(with_stage(plan_of(), 0, layers=("l1",)), 1, layers=("l0", "l2"))
    assert ("backward_edge", "/stages/0/layers/0") in pairs(check(plan))


def test_a_stage_names_a_device_once():
    assert ("duplicate_device", "/stages/1/devices/1") in pairs(check(with_stage(plan_of(), 1, devices=("d1", "d1"))))


def test_stages_are_numbered_in_order():
    assert pairs(check(with_stage(plan_of(), 1, index=2))) == [("wrong_index", "/stages/1/index")]


def test_microbatches_make_up_the_batch():
    plan = with_request(plan_of(), batch_size=9)
    assert pairs(check(plan)) == [("batch_mismatch", "/schedule/num_microbatches")]


def test_every_device_has_an_order():
    plan = plan_of()
    short = changed(plan, schedule=changed(plan.schedule, orders=plan.schedule.orders[:2]))
    assert ("wrong_length", "/schedule/orders") in pairs(check(short))


def test_cuts_along_the_topological_order_keep_stages_consecutive():
    layers = [layer(name) for name in "abc"]
    edges = (Edge(source="a", target="c"),)
    plan = make_plan(request(layers, 2, 2, edges=edges), [["a", "c"], ["b"]], "1f1b", 2)
    assert check(plan) == []
    assert pairs(check(with_request(plan, cuts="topological-order"))) == [("not_contiguous", "/stages/0/layers")]


def test_groups_and_pins_are_respected():
    plan = with_profile(
        plan_of(),
        groups=(("l1", "l2"), ("l2", "l3")),
        pins=(Pin(layer="l1", stage="first"), Pin(layer="l3", stage="last"), Pin(layer="l0", device="d2")),
    )
    assert pairs(check(plan)) == [
        ("split_group", "/stages/2/layers/0"),
        ("broken_pin", "/stages/1/layers/0"),
        ("broken_pin", "/stages/0/layers/0"),
    ]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"max_stages": 2}, ("too_many_stages", "/stages")),
        ({"microbatch_sizes": (1, 4)}, ("not_allowed", "/schedule/microbatch_size")),
        ({"microbatch_counts": (8,)}, ("not_allowed", "/schedule/num_microbatches")),
        ({"schedules": ("gpipe",)}, ("not_allowed", "/schedule/name")),
    ],
)
def test_choices_are_those_that_the_request_allows(fields, fault):
    assert pairs(check(with_request(plan_of(), **fields))) == [fault]


def test_idle_devices_only_where_the_request_lets_them():
    plan = plan_of(stages=[["l0", "l1"], ["l2", "l3"]])
    assert check(plan) == []
    assert pairs(check(with_request(plan, idle_devices=False))) == [("idle_device", "/stages")]


def test_replicas_are_limited_by_the_request():
    plan = plan_of("data-parallel", [["l0", "l1", "l2", "l3"]])
    assert pairs(check(with_request(plan, max_replication=2))) == [("too_many_replicas", "/stages/0/devices")]


def test_a_named_schedule_has_the_order_of_that_name():
    plan = plan_of()
    renamed = changed(plan, schedule=changed(plan.schedule, name="1f1b-so"))
    assert pairs(check(renamed)) == [
        ("wrong_schedule", "/schedule/orders/0"),
        ("wrong_schedule", "/schedule/orders/1"),
    ]
    assert check(changed(plan, schedule=changed(plan.schedule, name="custom"))) == []
    parallel = changed(plan, schedule=changed(plan.schedule, name="data-parallel"))
    assert pairs(check(parallel)) == [("wrong_schedule", "/schedule/name")]


def test_a_device_with_several_stages_has_a_custom_schedule():
    plan = with_stage(plan_of(), 1, devices=("d0",))
    first, second, third = plan.schedule.orders
    merged = (*(f"{s}F{k}" for k in range(4) for s in (0, 1)), *(f"{s}B{k}" for k in range(4) for s in (1, 0)))
    assert set(merged) == {*first, *second}
    schedule = changed(plan.schedule, orders=(merged, (), third))
    named = filled(changed(plan, schedule=schedule))
    assert pairs(check(named)) == [("wrong_schedule", "/schedule/name")]
    assert check(changed(named, schedule=changed(schedule, name="custom"))) == []


def test_an_order_that_deadlocks_is_a_fault():
    plan = plan_of()
    order = plan.schedule.orders[2]
    orders = (*plan.schedule.orders[:2], (order[1], order[0], *order[2:]))
    deadlocked = changed(plan, schedule=changed(plan.schedule, name="custom", orders=orders))
    assert ("deadlock", "/schedule/orders/2/0") in pairs(check(deadlocked))


def test_a_schedule_of_a_billion_microbatches_is_refused_without_being_written_out():
    plan = with_request(plan_of(), batch_size=10**9)
    vast = changed(plan, schedule=changed(plan.schedule, num_microbatches=10**9, microbatch_size=1))
    faults = check(vast)
    assert pairs(faults) == [("missing_operation", f"/schedule/orders/{device}") for device in range(3)]
    assert "0F4, 0B4, 0F5, 0B5, 0F6 and 1999999987 more" in faults[0].detail


def test_an_incomplete_order_is_a_fault():
    plan = plan_of()
    orders = (plan.schedule.orders[0][:-1], *plan.schedule.orders[1:])
    cut = changed(plan, schedule=changed(plan.schedule, name="custom", orders=orders))
    assert pairs(check(cut)) == [("missing_operation", "/schedule/orders/0")]


def test_the_stage_that_exceeds_its_memory_is_named():
    plan = plan_of()
    small = changed(plan.request.cluster.devices[1], memory_bytes=500)
    devices = (plan.request.cluster.devices[0], small, plan.request.cluster.devices[2])
    full = with_request(plan, cluster=changed(plan.request.cluster, devices=devices))
    assert pairs(check(full)) == [
        ("out_of_memory", "/stages/1/devices/0"),
        ("wrong_value", "/stages/1/memory_limit_bytes"),
    ]


@pytest.mark.parametrize("field", ["forward_s", "backward_s", "load_s", "peak_memory_bytes"])
def test_declared_figures_of_a_stage_are_those_found(field):
    plan = plan_of()
    value = getattr(plan.stages[1], field)
    assert check(with_stage(plan, 1, **{field: value * (1 + 1e-12)})) == []
    assert pairs(check(with_stage(plan, 1, **{field: value * 1.0001}))) == [("wrong_value", f"/stages/1/{field}")]


def test_the_prediction_is_that_of_the_simulator():
    plan = plan_of()
    devices = (changed(plan.prediction.devices[0], busy_s=1.0), *plan.prediction.devices[1:])
    wrong = changed(plan.prediction, step_time_s=1.0, devices=devices, links=())
    assert pairs(check(changed(plan, prediction=wrong))) == [
        ("wrong_value", "/prediction/step_time_s"),
        ("wrong_value", "/prediction/devices/0/busy_s"),
        ("wrong_length", "/prediction/links"),
    ]


def test_a_bound_above_the_plan_is_none():
    plan = plan_of()
    reached = plan.prediction.step_time_s
    assert check(changed(plan, proof=changed(plan.proof, lower_bound_s=reached))) == []
    above = changed(plan, proof=changed(plan.proof, lower_bound_s=reached * 1.001))
    assert pairs(check(above)) == [("wrong_bound", "/proof/lower_bound_s")]


@pytest.mark.parametrize(
    ("share", "kinds", "links", "said"),
    [
        (0.5, {}, {}, "only an asynchronous device can be split"),
        (1.0, {"execution": "async"}, {}, "between 0 and 1"),
        (0.5, {"execution": "async"}, {"mode": "blocking"}, "no blocking links"),
    ],
)
def test_a_device_that_cannot_be_split_is_refused(share, kinds, links, said):
    devices = cluster(3, Link(bandwidth_bytes_per_s=16.0, **links), **kinds)
    plan = with_request(with_stage(plan_of(), 1, forward_share=share), cluster=devices)
    faults = check(plan)
    assert pairs(faults) == [("wrong_share", "/stages/1/forward_share")]
    assert said in faults[0].detail


def test_a_named_schedule_splits_every_device_or_none():
    devices = cluster(3, Link(bandwidth_bytes_per_s=16.0, mode="streaming", chunks=4), execution="async")
    plan = filled(with_request(plan_of(), cluster=devices))
    assert pairs(check(filled(with_stage(plan, 1, forward_share=0.5)))) == [
        ("wrong_schedule", "/stages/1/forward_share")
    ]
    orders = placed_orders("fbp-as", [stage.devices for stage in plan.stages], [f"d{k}" for k in range(3)], 4)
    split = changed(plan, schedule=changed(plan.schedule, name="fbp-as", orders=orders))
    assert pairs(check(filled(split))) == [("wrong_schedule", f"/stages/{s}/forward_share") for s in range(3)]
    for s in range(3):
        split = with_stage(split, s, forward_share=0.25)
    assert check(filled(split)) == []


def test_a_split_device_does_nothing_else():
    devices = cluster(3, execution="async")
    plan = with_request(plan_of(recomputation="allowed"), cluster=devices)
    split = with_stage(plan, 1, forward_share=0.5, recomputed_layers=("l1",))
    assert "recomputes nothing" in check(split)[0].detail
    assert "one stage" in check(with_stage(with_stage(plan, 1, forward_share=0.5), 2, devices=("d1",)))[0].detail


def test_recomputation_is_of_own_layers_each_once_and_only_where_it_is_allowed():
    plan = with_request(plan_of(), recomputation="allowed")
    assert pairs(check(with_stage(plan, 1, recomputed_layers=("l0", "l1", "l1")))) == [
        ("dangling_reference", "/stages/1/recomputed_layers/0"),
        ("duplicate_layer", "/stages/1/recomputed_layers/2"),
    ]
    assert check(filled(with_stage(plan, 1, recomputed_layers=("l1",)))) == []
    forbidden = filled(with_stage(plan_of(), 1, recomputed_layers=("l1",)))
    assert pairs(check(forbidden)) == [("not_allowed", "/stages/1/recomputed_layers")]
    inference = with_stage(plan_of(task="inference", recomputation="allowed"), 1, recomputed_layers=("l1",))
    assert pairs(check(inference)) == [("nothing_to_recompute", "/stages/1/recomputed_layers")]


def test_all_faults_come_at_once():
    plan = with_request(with_stage(plan_of(), 1, layers=("l1",), index=5), max_stages=1, schedules=("gpipe",))
    assert {fault.code for fault in check(plan)} == {"wrong_index", "missing_layer", "too_many_stages", "not_allowed"}


def test_skip_tensors_may_be_sent_direct():
    edges = (Edge(source="a", target="b"), Edge(source="b", target="c"), Edge(source="a", target="c"))
    skipping = make_plan(request([layer(n) for n in "abc"], 3, 2, edges=edges), [["a"], ["b"], ["c"]], "1f1b", 2)
    direct = with_request(skipping, cluster=changed(skipping.request.cluster, skip_tensors="direct"))
    assert check(filled(direct)) == []


def test_a_gap_follows_from_the_bound_and_the_status_from_the_gap():
    plan = plan_of()
    half = changed(plan.proof, lower_bound_s=plan.prediction.step_time_s / 2, gap=0.5)
    assert check(changed(plan, status="feasible", proof=half)) == []
    assert pairs(check(changed(plan, status="optimal", proof=half))) == [("wrong_bound", "/status")]
    smaller = changed(half, gap=0.1)
    assert pairs(check(changed(plan, status="feasible", proof=smaller))) == [("wrong_bound", "/proof/gap")]
    unknown = changed(plan.proof, lower_bound_s=None, gap=0.0)
    assert pairs(check(changed(plan, status="optimal", proof=unknown))) == [
        ("wrong_bound", "/proof/gap"),
        ("wrong_bound", "/status"),
    ]


def test_what_is_declared_and_what_is_done_are_told_apart():
    plan = plan_of()
    prediction = changed(plan.prediction, step_time_s=1.0, links=())
    declared = check(changed(with_stage(plan, 0, load_s=9.0), prediction=prediction))
    assert len(declared) == 3
    assert all(is_claim(fault) for fault in declared)
    orders = plan.schedule.orders[:2]
    short = changed(plan, schedule=changed(plan.schedule, orders=orders))
    assert not any(is_claim(fault) for fault in check(short))


def test_a_simulation_that_is_there_already_is_used():
    plan = plan_of()
    assert check(plan, simulate(plan)) == check(plan) == []
