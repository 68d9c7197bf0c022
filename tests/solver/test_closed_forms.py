"""The closed forms of streaming and asynchronous schedules over equal stages, exactly, on the whole grid.

Those of the others are with what they belong to: GPipe, 1F1B and 1F1B-SO in `simulator/test_replay.py`, 1F1B-SNO in
`test_lowering.py`, given orders in `test_given_orders.py`, PipeDream in `test_no_flush.py`. Times are small dyadic
numbers, so that sums are without rounding.
"""

from __future__ import annotations

import pytest

from bapipe.orders import operation
from bapipe.schedules import in_flight, orders
from bapipe.schedules.interleaved import interleaved_orders
from bapipe.schedules.zero_bubble import zb_h_orders, zb_v_orders
from bapipe.simulator.occupancy import usage_of
from judges.given_orders import (
    forward_backward,
    interleaved,
    makespan_s,
    one_f_one_b,
    replay_equal,
    streamed_s,
    zero_bubble,
)

GRID = [(n, m) for n in range(1, 9) for m in range(1, 21)]


def read(named):
    """Orders as operations."""
    return [[operation(name) for name in order] for order in named]


@pytest.mark.parametrize(("forward_s", "backward_s"), [(1.0, 2.0), (3.0, 1.5)])
@pytest.mark.parametrize("g", [1, 2, 4])
def test_1f1b_as(g, forward_s, backward_s):
    round_s = forward_s + backward_s
    for n, m in GRID:
        found = streamed_s(read(orders("1f1b", n, m)), {"F": forward_s, "B": backward_s}, g)
        assert found == m * round_s + (n - 1) * round_s / g


def test_1f1b_as_keeps_as_many_in_flight_as_1f1b():
    for n, m in GRID:
        expected = [min(m, n - i + 1) for i in range(1, n + 1)]
        assert [usage_of(order, training=True).in_flight for order in one_f_one_b(n, m)] == expected
        assert [in_flight("1f1b", s, n, m) for s in range(n)] == expected


@pytest.mark.parametrize("g", [1, 2, 4])
def test_fbp_as(g):
    """Both engines take T. As many in flight as storing and forwarding needs do no harm to links that cut through."""
    round_s = 3.0
    for n, m in GRID:
        expected = (m + 2 * n - 1) * round_s if g == 1 else (m + 1) * round_s + 2 * (n - 1) * round_s / g
        for order in {1: [forward_backward(n, m)]}.get(g, [forward_backward(n, m, g), forward_backward(n, m)]):
            assert streamed_s(order, {"F": round_s, "B": round_s}, g, engines=2) == expected


def test_fbp_as_keeps_twice_as_many_in_flight():
    for n, m in GRID:
        found = [usage_of(order, training=True, engines=2).in_flight for order in forward_backward(n, m)]
        assert found == [min(m, 2 * (n - i + 1)) for i in range(1, n + 1)]


def test_zb_v():
    for n, m in GRID:
        if m >= 2 * n - 1:
            order = read(zb_v_orders(n, m))
            assert makespan_s(order, {"F": 1.0, "I": 1.0, "W": 1.0}, stages=2 * n) == 6 * m + n - 1
            assert [most_chunks(each) for each in order] == [2 * n] * n


def most_chunks(order):
    """Most forwards of any stage without their weight gradient."""
    live = most = 0
    for each in order:
        live += each.kind == "F"
        most = max(most, live)
        live -= each.kind == "W"
    return most


def test_zb_v_idles_only_before_its_first_and_after_its_last_operation():
    for n, m in GRID:
        if m >= 2 * n - 1:
            order = read(zb_v_orders(n, m))
            starts_s = replay_equal(order, {"F": 1.0, "I": 1.0, "W": 1.0}, stages=2 * n).starts_s
            assert [starts_s[each[-1]] + 1 - starts_s[each[0]] for each in order] == [6 * m] * n


def test_the_orders_that_come_with_bapipe_are_those_of_a_rule_written_apart():
    for n, m in GRID:
        for variant in (1, 2):
            assert read(zb_h_orders(n, m, variant)) == zero_bubble(n, m, variant)
        if m % n == 0:
            assert read(interleaved_orders(n, m, 2)) == interleaved(n, m, 2)
    with pytest.raises(ValueError, match="3 devices do not divide 4 micro-batches"):
        interleaved_orders(3, 4, 2)
    with pytest.raises(ValueError, match="4 micro-batches, and 3 devices need 5"):
        zb_v_orders(3, 4)
