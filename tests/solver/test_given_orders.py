"""Published schedules given as orders: their closed forms, exactly, and what they keep in flight."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bapipe.errors import InvalidInputError
from bapipe.problem import Link
from bapipe.schedules import operations
from bapipe.simulator import simulate
from bapipe.simulator.events import Price, replay_events
from bapipe.simulator.occupancy import usage_of
from bapipe.simulator.replay import replay
from judges.given_orders import (
    Orders,
    forward_backward,
    interleaved,
    job_of,
    lowered_pipeline,
    makespan_s,
    one_f_one_b,
    zero_bubble,
)
from judges.instances import bare_plan, cluster, equal_pipeline, layer, make_plan, request

GRID = [(n, m) for n in range(1, 9) for m in range(1, 21)]


def chunks_in_flight(orders: Orders, device: int) -> int:
    """Most forwards of a device, of all its stages, without the end of their backward."""
    live = most = 0
    split = any(operation.kind == "W" for operation in orders[device])
    for operation in orders[device]:
        live += operation.kind == "F"
        most = max(most, live)
        live -= operation.kind == ("W" if split else "B")
    return most


def test_events_and_the_sweep_find_the_same_times():
    for n, m in GRID:
        for send_s in (0.0, 0.5, 1.5):
            swept = replay(equal_pipeline(n, 1.0, 2.0, send_s), operations("1f1b", n, m), m).step_time_s
            manner = "overlapped" if send_s else "free"
            assert makespan_s(one_f_one_b(n, m), {"F": 1.0, "B": 2.0}, send_s, manner) == swept


@pytest.mark.parametrize(("forward_s", "backward_s"), [(1.0, 2.0), (2.0, 2.0), (3.0, 1.5)])
@pytest.mark.parametrize("v", [1, 2, 3])
def test_interleaved_1f1b(forward_s, backward_s, v):
    for n, m in GRID:
        if m % n or m == n:
            continue
        orders = interleaved(n, m, v)
        expected = (m * v + n - 1) * (forward_s + backward_s)
        assert makespan_s(orders, {"F": forward_s, "B": backward_s}, stages=n * v) == expected
        if v > 1:
            in_flight = [chunks_in_flight(orders, d) for d in range(n)]
            assert in_flight == [min(m * v, 2 * (n - d - 1) + (v - 1) * n + 1) for d in range(n)]


@pytest.mark.parametrize(("f", "i", "w"), [(1.0, 1.0, 1.0), (1.0, 1.0, 0.5), (1.0, 1.25, 0.75), (2.0, 1.5, 1.0)])
def test_zb_h1(f, i, w):
    for n, m in GRID:
        if m < 2 * n - 1:
            continue
        orders = zero_bubble(n, m, 1)
        assert makespan_s(orders, {"F": f, "I": i, "W": w}) == m * (f + i + w) + (n - 1) * (f + i - w)
        assert [usage_of(order, training=True).in_flight for order in orders] == [n] * n


@pytest.mark.parametrize(("f", "i", "w"), [(1.0, 1.0, 1.0), (1.0, 1.0, 0.5), (1.0, 1.25, 0.75)])
def test_zb_h2(f, i, w):
    for n, m in GRID:
        if m < 2 * n - 1:
            continue
        orders = zero_bubble(n, m, 2)
        expected = m * (f + i + w) + (n - 1) * max(f, f + i - 2 * w)
        assert makespan_s(orders, {"F": f, "I": i, "W": w}) == expected
        assert [usage_of(order, training=True).in_flight for order in orders] == [2 * n - 1] * n


def streaming_request(n, m, chunks, forward_s, backward_s, send_s, **fields):
    """Equal stages of asynchronous devices, streamable unless said."""
    layers = [
        layer(f"l{k}", forward_s, backward_s, output_bytes_per_sample=8.0, **{"streamable": True, **fields})
        for k in range(n)
    ]
    rate = 8.0 / send_s if send_s else None
    link = Link(bandwidth_bytes_per_s=rate, mode="streaming", chunks=chunks)
    return request(layers, cluster(n, link, execution="async"), m)


def step_s(asked, m):
    n = len(asked.profile.layers)
    return simulate(make_plan(asked, [[f"l{k}"] for k in range(n)], "1f1b", m)).step_time_s


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_1f1b_over_streaming_links_is_as(chunks):
    for n, m in GRID[:: 3 if chunks == 2 else 2]:
        found = step_s(streaming_request(n, m, chunks, 1.0, 2.0, 0.0), m)
        assert found == m * 3.0 + (n - 1) * 3.0 / chunks


def test_a_link_that_keeps_up_adds_one_chunk_a_boundary_each_way():
    for n in range(2, 6):
        found = step_s(streaming_request(n, 1, 4, 1.0, 2.0, 1.0), 1)
        assert found == 3.0 + (n - 1) * (3.0 + 2 * 1.0) / 4


def test_a_slower_link_sets_the_pace_of_the_reader():
    # the last of 4 chunks of 1 s arrives at 0.25 + 4; the reader's last quarter comes after it
    assert step_s(streaming_request(2, 1, 4, 1.0, 1.0, 4.0), 1) == 0.25 + 4.0 + 0.25 + 0.25 + 4.0 + 0.25


def test_what_cannot_stream_is_stored_and_forwarded():
    whole = 2 * 3.0 + 2 * 1.0
    assert step_s(streaming_request(2, 1, 4, 1.0, 2.0, 1.0, streamable=False), 1) == whole
    asked = streaming_request(2, 1, 4, 1.0, 2.0, 1.0)
    kinds = tuple(kind.model_copy(update={"execution": "sync"}) for kind in asked.cluster.kinds)
    synchronous = asked.model_copy(update={"cluster": asked.cluster.model_copy(update={"kinds": kinds})})
    assert step_s(synchronous, 1) == whole


def given(asked, stages, placed, orders, m, recomputed=None):
    """A plan of given orders, micro-batches of one sample."""
    plan = make_plan(asked, [[item.id for item in asked.profile.layers]], "gpipe", m)
    named = tuple(tuple(map(str, order)) for order in orders)
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": named})
    return bare_plan(asked, stages, placed, schedule, recomputed)


def test_recomputation_is_work_and_frees_the_stash():
    layers = [layer(f"l{k}", 1.0, 2.0, stash_bytes_per_sample=100.0) for k in range(4)]
    asked = request(layers, 4, 8)
    stages, placed = [[f"l{k}"] for k in range(4)], [[f"d{k}"] for k in range(4)]
    again = [(f"l{k}",) for k in range(4)]
    simulation = simulate(given(asked, stages, placed, one_f_one_b(4, 8), 8, again))
    assert simulation.step_time_s == 11 * (1.0 + 1.0 + 2.0)
    assert simulation.peak_memory_bytes == (100.0,) * 4
    assert simulation.cost.stages[0].backward_s == 3.0


def test_a_recomputation_of_its_own_need_not_await_the_gradient():
    layers = [layer("a", 1.0, 1.0), layer("b", 1.0, 1.0)]
    asked = request(layers, 2, 1)
    orders = (("0F0", "0R0", "0B0"), ("1F0", "1B0"))
    apart = simulate(given(asked, [["a"], ["b"]], [["d0"], ["d1"]], orders, 1, [("a",), ()]))
    assert apart.step_time_s == 4.0
    orders = (("0F0", "0B0"), ("1F0", "1B0"))
    inside = simulate(given(asked, [["a"], ["b"]], [["d0"], ["d1"]], orders, 1, [("a",), ()]))
    assert inside.step_time_s == 5.0


def test_replicas_of_a_stage_take_microbatches_in_turn_and_reduce_over_their_links():
    layers = [layer("a", 1.0, 1.0, parameter_bytes=8), layer("b", 1.0, 1.0)]
    asked = request(layers, 3, 2)
    orders = (("0F0", "0B0"), ("0F1", "0B1"), ("1F0", "1B0", "1F1", "1B1"))
    simulation = simulate(given(asked, [["a"], ["b"]], [["d0", "d1"], ["d2"]], orders, 2))
    assert simulation.step_time_s == 1.0 + 4.0 + 1.0
    assert [reduction.stage for reduction in simulation.reductions] == [0]


def side_by_side(n, m, chunks, forward_s, backward_s):
    """Equal stages on devices whose engines both take as long as forward and backward together."""
    asked = streaming_request(n, m, chunks, forward_s, backward_s, 0.0, stash_bytes_per_sample=100.0)
    stages, placed = [[f"l{k}"] for k in range(n)], [[f"d{k}"] for k in range(n)]
    plan = given(asked, stages, placed, forward_backward(n, m, chunks), m)
    share = forward_s / (forward_s + backward_s)
    shared = tuple(stage.model_copy(update={"forward_share": share}) for stage in plan.stages)
    return simulate(plan.model_copy(update={"stages": shared}))


@pytest.mark.parametrize(("forward_s", "backward_s"), [(1.0, 1.0), (1.0, 3.0)])
def test_fbp_stored_and_forwarded(forward_s, backward_s):
    round_s = forward_s + backward_s
    for n, m in GRID[::3]:
        simulation = side_by_side(n, m, 1, forward_s, backward_s)
        assert simulation.step_time_s == (m + 2 * n - 1) * round_s
        assert simulation.busy_s == pytest.approx((m * round_s,) * n)


@pytest.mark.parametrize("chunks", [2, 4])
def test_fbp_cut_through(chunks):
    for n, m in GRID[::3]:
        assert side_by_side(n, m, chunks, 1.0, 1.0).step_time_s == (m + 1) * 2.0 + 2 * (n - 1) * 2.0 / chunks


def test_fbp_keeps_twice_as_many_in_flight():
    for n, m in GRID[::3]:
        orders = forward_backward(n, m)
        found = [usage_of(order, training=True, engines=2).in_flight for order in orders]
        assert found == [min(m, 2 * (n - s)) for s in range(n)]


def test_a_backward_listed_before_its_forward_is_a_deadlock_on_two_engines_too():
    plan = given(streaming_request(1, 1, 1, 1.0, 1.0, 0.0), [["l0"]], [["d0"]], [("0B0", "0F0")], 1)
    shared = plan.stages[0].model_copy(update={"forward_share": 0.5})
    with pytest.raises(InvalidInputError) as error:
        simulate(plan.model_copy(update={"stages": (shared,)}))
    assert {(fault.code, fault.pointer) for fault in error.value.faults} == {
        ("deadlock", "/schedule/orders/0/0"),
        ("deadlock", "/schedule/orders/0/1"),
    }


def unequal(n, m, forward, backward, send, manner):
    """The end of 1F1B over unequal stages and boundaries."""
    job = job_of(lowered_pipeline(one_f_one_b(n, m), n, manner), {"F": 0.0, "B": 0.0}, 0.0)
    seconds = tuple({o: (forward if o.kind == "F" else backward)[o.stage] for o in order} for order in job.seconds)
    prices = tuple(
        Price(send[min(message.made_by.stage, message.read_by.stage)], ((message.source, message.target),))
        for message in job.lowered.messages
    )
    return max(replay_events(replace(job, seconds=seconds, prices=prices)).compute_end_s)


@pytest.mark.parametrize("manner", ["overlapped", "fused", "ordered"])
def test_fill_work_and_drain_bound_every_link_that_stores_and_forwards(manner):
    random = Random(3)
    for _ in range(1000):
        n, m = random.randint(2, 6), random.randint(1, 10)
        forward, backward, send = ([random.randint(1, 32) / 8 for _ in range(n)] for _ in range(3))
        end_s = unequal(n, m, forward, backward, send, manner)
        for s in range(n):
            way_s = sum(send[:s])
            fill_s, drain_s = sum(forward[:s]) + way_s, sum(backward[:s]) + way_s
            assert fill_s + m * (forward[s] + backward[s]) + drain_s <= end_s


def test_they_do_not_bound_links_that_stream():
    found = step_s(streaming_request(3, 4, 4, 1.0, 2.0, 0.0), 4)
    assert found < (3 - 1) * 3.0 + 4 * 3.0
