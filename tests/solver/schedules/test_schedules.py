from itertools import pairwise

import pytest

from bapipe import link_modes
from bapipe.schedules import in_flight, operations, orders, placed_orders, warm_up
from judges import replay as judge
from judges.given_orders import forward_backward

PIPELINES = ("gpipe", "1f1b", "1f1b-so")
GRID = [(n, m) for n in range(1, 9) for m in range(1, 21)]


@pytest.mark.parametrize("name", PIPELINES)
def test_orders_are_those_of_a_rule_written_apart(name):
    for n, m in GRID:
        for training in (True, False):
            expected = [
                [f"{s}{kind}{k}" for kind, k in judge.order(name, s, n, m, training=training)] for s in range(n)
            ]
            assert [list(order) for order in orders(name, n, m, training=training)] == expected


def test_1f1b_keeps_as_many_in_flight_as_stages_from_here_on():
    for n, m in GRID:
        assert [in_flight("1f1b", s, n, m) for s in range(n)] == [min(m, n - s) for s in range(n)]
        assert [warm_up("1f1b", s, n, m) for s in range(n)] == [min(m, n - 1 - s) for s in range(n)]


def test_fbp_runs_backwards_beside_forwards_with_twice_as_many_in_flight():
    for n, m in GRID:
        assert [list(order) for order in orders("fbp-as", n, m)] == [
            list(map(str, order)) for order in forward_backward(n, m)
        ]
        assert [in_flight("fbp-as", s, n, m) for s in range(n)] == [min(m, 2 * (n - s)) for s in range(n)]


def test_1f1b_so_doubles_the_warm_up():
    for n, m in GRID:
        assert [in_flight("1f1b-so", s, n, m) for s in range(n)] == [min(m, 2 * (n - 1 - s) + 1) for s in range(n)]
        assert [warm_up("1f1b-so", s, n, m) for s in range(n)] == [min(m, 2 * (n - 1 - s)) for s in range(n)]


def test_gpipe_keeps_every_microbatch_in_flight():
    for n, m in GRID:
        assert {in_flight("gpipe", s, n, m) for s in range(n)} == {m}


def test_inference_keeps_one_microbatch_in_flight_and_has_no_backward():
    assert in_flight("gpipe", 0, 4, 8, training=False) == 1
    assert orders("1f1b", 2, 3, training=False) == (("0F0", "0F1", "0F2"), ("1F0", "1F1", "1F2"))


def test_replicas_take_microbatches_in_turn():
    assert orders("data-parallel", 2, 5) == (
        ("0F0", "0B0", "0F2", "0B2", "0F4", "0B4"),
        ("0F1", "0B1", "0F3", "0B3"),
    )
    assert [in_flight("data-parallel", r, 3, 2) for r in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("name", [*PIPELINES, "data-parallel"])
@pytest.mark.parametrize("training", [True, False])
def test_integer_operations_say_the_same_as_strings(name, training):
    for n, m in ((1, 1), (3, 2), (4, 9)):
        named = orders(name, n, m, training=training)
        for order, codes in zip(named, operations(name, n, m, training=training), strict=True):
            stage = order[0][0] if order else ""
            assert list(order) == [f"{stage}{'FB'[code & 1]}{code >> 1}" for code in codes]


def test_idle_devices_have_an_empty_order():
    placed = placed_orders("1f1b", [["b"], ["d"]], ["a", "b", "c", "d"], 2)
    assert placed == ((), ("0F0", "0F1", "0B0", "0B1"), (), ("1F0", "1B0", "1F1", "1B1"))


def test_the_pipelines_are_ranked_by_what_they_keep_in_flight_on_every_stage():
    for n, m in GRID:
        for lower, higher in pairwise(link_modes.PIPELINES):
            assert all(in_flight(lower, s, n, m) <= in_flight(higher, s, n, m) for s in range(n))
