"""Where transfers stand in an order, and what blocking links make of 1F1B."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from bapipe.errors import InvalidInputError
from bapipe.lowering import Exchange, Lowered, Operation, lower
from bapipe.problem import Link
from bapipe.simulator import simulate
from bapipe.simulator.events import replay_events
from judges.given_orders import job_of, lowered_pipeline, makespan_s, one_f_one_b
from judges.instances import cluster, layer, make_plan, request

GRID = [(n, m) for n in range(2, 9) for m in range(1, 21)]
TIMES = [(1.0, 2.0, 0.5), (3.0, 1.5, 0.25), (1.0, 2.0, 1.5), (1.0, 2.0, 3.0), (2.0, 2.0, 2.0), (2.0, 1.0, 3.0)]


def words(lowered: Lowered, number: int) -> list[str]:
    """An order in words: `1F0`, `<0F0` a receive, `>1F0` a send, joined by `&` in an exchange."""
    result = []
    for step in lowered.orders[number]:
        if isinstance(step, Operation):
            result.append(str(step))
        else:
            messages = [lowered.messages[k] for k in step.messages]
            result.append("&".join(f"{'>' if m.source == number else '<'}{m.made_by}" for m in messages))
    return result


def test_overlapped_transfers_are_no_steps_but_are_awaited():
    lowered = lowered_pipeline(one_f_one_b(2, 2), 2, "overlapped")
    assert words(lowered, 0) == ["0F0", "0F1", "0B0", "0B1"]
    read = [str(lowered.messages[k].made_by) for k in lowered.reads[Operation(1, "F", 1)]]
    assert read == ["0F1"]
    assert [str(lowered.messages[k].read_by) for k in lowered.sends[Operation(1, "B", 0)]] == ["0B0"]


def test_blocking_transfers_are_sent_after_their_operation_and_received_before_it():
    lowered = lowered_pipeline(one_f_one_b(3, 2), 3, "fused")
    assert words(lowered, 0) == ["0F0", ">0F0", "0F1", ">0F1", "<1B0", "0B0", "<1B1", "0B1"]
    assert words(lowered, 1) == [
        *("<0F0", "1F0", ">1F0", "<0F1", "1F1", ">1F1&<2B0", "1B0", ">1B0", "<2B1", "1B1", ">1B1"),
    ]


def test_an_ordered_exchange_is_the_activation_then_the_gradient_at_both_ends():
    lowered = lowered_pipeline(one_f_one_b(2, 2), 2, "ordered")
    assert words(lowered, 0) == ["0F0", ">0F0", "0F1", ">0F1", "<1B0", "0B0", "<1B1", "0B1"]
    assert words(lowered, 1) == ["<0F0", "1F0", "1B0", "<0F1", ">1B0", "1F1", "1B1", ">1B1"]


def test_what_stays_on_a_device_is_not_sent():
    order = [Operation(s, kind, 0) for kind, stages in (("F", (0, 1)), ("B", (1, 0))) for s in stages]
    lowered = lower([order], [], lambda source, target, size: "fused")
    assert lowered.orders == (tuple(order),)
    assert lowered_pipeline([order], 2, "fused").orders == (tuple(order),)


@pytest.mark.parametrize(("forward_s", "backward_s", "send_s"), TIMES)
def test_1f1b_over_blocking_links_with_fused_exchange_is_sno(forward_s, backward_s, send_s):
    round_s = forward_s + backward_s
    for n, m in GRID:
        if m == 1:
            expected = n * round_s + 2 * (n - 1) * send_s
        elif n == 2:
            expected = (m + 1) * (round_s + send_s)
        else:
            longer_s = max(0.0, send_s - forward_s) + max(0.0, send_s - backward_s)
            expected = (m + n - 1) * round_s + (2 * m + 2 * n - 5) * send_s + longer_s
        assert makespan_s(one_f_one_b(n, m), {"F": forward_s, "B": backward_s}, send_s, "fused") == expected


def test_an_ordered_exchange_costs_about_two_transfers_more_a_microbatch():
    for n, m in GRID:
        if n > 2 and m > 1:
            found = makespan_s(one_f_one_b(n, m), {"F": 1.0, "B": 2.0}, 0.5, "ordered")
            assert found == (m + n - 1) * 3.0 + (4 * m + 2 * n - 8) * 0.5


def test_a_plan_over_blocking_links_is_sno():
    asked = request(
        [layer(f"l{k}", 1.0, 2.0, output_bytes_per_sample=4.0) for k in range(4)],
        cluster(4, Link(bandwidth_bytes_per_s=8.0, mode="blocking")),
        6,
    )
    simulation = simulate(make_plan(asked, [[f"l{k}"] for k in range(4)], "1f1b", 6))
    assert simulation.step_time_s == 9 * 3.0 + (12 + 8 - 5) * 0.5
    assert simulation.period_s == simulation.step_time_s


def sender_first(lowered: Lowered) -> Lowered:
    """Both ends of an ordered exchange send before they receive."""
    orders = []
    for number, order in enumerate(lowered.orders):
        steps = list(order)
        for k, (one, other) in enumerate(pairwise(steps)):
            if isinstance(one, Exchange) and isinstance(other, Exchange):
                first = lowered.messages[one.messages[0]]
                if first.target == number and lowered.messages[other.messages[0]].target == first.source:
                    steps[k : k + 2] = [other, one]
        orders.append(tuple(steps))
    return dataclasses.replace(lowered, orders=tuple(orders))


def test_sender_first_is_a_deadlock_named_by_its_cycle():
    lowered = sender_first(lowered_pipeline(one_f_one_b(3, 3), 3, "ordered"))
    with pytest.raises(InvalidInputError) as error:
        replay_events(job_of(lowered, {"F": 1.0, "B": 2.0}, 0.5))
    assert {fault.code for fault in error.value.faults} == {"deadlock"}
    said = error.value.faults[1].detail
    assert "in the cycle send of 1F1 -> send of 2B0 -> send of 1F1" in said


def test_a_cycle_of_orders_is_named_by_its_operations():
    asked = request([layer("a"), layer("b")], cluster(2, Link(mode="blocking", latency_s=0.5)), 2)
    plan = make_plan(asked, [["a"], ["b"]], "1f1b", 2)
    orders = (("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1"))
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": orders})
    with pytest.raises(InvalidInputError) as error:
        simulate(plan.model_copy(update={"schedule": schedule}))
    assert [(fault.code, fault.pointer) for fault in error.value.faults] == [
        ("deadlock", "/schedule/orders/0/1"),
        ("deadlock", "/schedule/orders/1/1"),
    ]
    assert "in the cycle 0B0 -> 1F1 -> 0B0" in error.value.faults[0].detail


def test_a_long_cycle_is_shortened():
    n = 20  # stage n + d before stage d on every device d: each waits for the device before it
    orders = [[Operation(n + d, "F", 0), Operation(d, "F", 0)] for d in range(n)]
    with pytest.raises(InvalidInputError) as error:
        replay_events(job_of(lowered_pipeline(orders, 2 * n, "free"), {"F": 1.0}, 0.0))
    assert len(error.value.faults) == n
    said = {fault.detail.partition("in the cycle ")[2].partition(";")[0] for fault in error.value.faults}
    assert said == {"20F0 -> 39F0 -> 38F0 -> 37F0 -> 36F0 -> 35F0 -> 34F0 -> 33F0 -> 12 more -> 20F0"}
