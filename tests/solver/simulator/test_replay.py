"""The closed forms of the schedules, exactly: all times are small dyadic numbers, so sums are without rounding."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.errors import InvalidInputError
from bapipe.schedules import operations
from bapipe.simulator.replay import replay
from judges import replay as judge
from judges.instances import equal_pipeline, pipeline

GRID = [(n, m) for n in range(1, 9) for m in range(1, 21)]
TIMES = [(1.0, 2.0), (3.0, 1.5), (2.0, 2.0), (0.75, 4.0)]
PIPELINES = ("gpipe", "1f1b", "1f1b-so")

dyadic = st.integers(0, 64).map(lambda x: x / 8)


def step_time_s(cost, name, num_microbatches):
    return replay(cost, operations(name, len(cost.stages), num_microbatches), num_microbatches).step_time_s


@pytest.mark.parametrize(("forward_s", "backward_s"), TIMES)
@pytest.mark.parametrize("name", PIPELINES)
def test_free_transfers_take_m_plus_n_minus_1_rounds(name, forward_s, backward_s):
    for n, m in GRID:
        expected = (m + n - 1) * (forward_s + backward_s)
        assert step_time_s(equal_pipeline(n, forward_s, backward_s, 0.0), name, m) == expected


@pytest.mark.parametrize(("forward_s", "backward_s"), TIMES)
def test_gpipe_hides_all_but_two_transfers_a_boundary(forward_s, backward_s):
    for send_s in (0.125, 0.5, min(forward_s, backward_s)):
        for n, m in GRID:
            expected = (m + n - 1) * (forward_s + backward_s) + 2 * (n - 1) * send_s
            assert step_time_s(equal_pipeline(n, forward_s, backward_s, send_s), "gpipe", m) == expected


@pytest.mark.parametrize(("forward_s", "backward_s"), TIMES)
def test_1f1b_so_hides_all_but_two_transfers_a_boundary(forward_s, backward_s):
    for send_s in (0.125, 0.5, min(forward_s, backward_s, (forward_s + backward_s) / 2)):
        for n, m in GRID:
            expected = (m + n - 1) * (forward_s + backward_s) + 2 * (n - 1) * send_s
            assert step_time_s(equal_pipeline(n, forward_s, backward_s, send_s), "1f1b-so", m) == expected


def test_1f1b_so_with_one_forward_less_is_not_enough_from_three_microbatches():
    for n in range(2, 9):
        for m in range(3, 21):
            orders = [_warmed_up(max(0, 2 * (n - 1 - s) - 1), m) for s in range(n)]
            short = replay(equal_pipeline(n, 1.0, 1.0, 1.0), orders, m).step_time_s
            assert short > (m + n - 1) * 2 + 2 * (n - 1)


def _warmed_up(warm_up, m):
    first = min(warm_up, m)
    order = [2 * k for k in range(first)]
    for k in range(m - first):
        order += [2 * (first + k), 2 * k + 1]
    return order + [2 * k + 1 for k in range(m - first, m)]


@pytest.mark.parametrize("send_s", [0.125, 0.5])
def test_1f1b_over_overlapped_links_loses_two_transfers_a_boundary_every_n_microbatches(send_s):
    for n in range(2, 9):
        for m in range(n, 21):
            cost = equal_pipeline(n, 1.0, 2.0, send_s)
            growth = step_time_s(cost, "1f1b", m + n) - step_time_s(cost, "1f1b", m)
            assert growth == n * 3 + 2 * (n - 1) * send_s


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(dyadic, dyadic), min_size=1, max_size=8), st.integers(1, 20))
def test_gpipe_of_unequal_stages_over_free_links(stages, m):
    forward, backward = [f for f, _ in stages], [b for _, b in stages]
    expected = sum(forward) + sum(backward) + (m - 1) * (max(forward) + max(backward))
    assert step_time_s(pipeline(forward, backward, [0.0] * (len(stages) - 1)), "gpipe", m) == expected


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(dyadic, dyadic, dyadic), min_size=1, max_size=5),
    st.integers(1, 9),
    st.sampled_from(PIPELINES),
)
def test_every_start_is_that_of_a_fixed_point_iteration(stages, m, name):
    forward, backward, send = (list(times) for times in zip(*stages, strict=True))
    orders = [judge.order(name, s, len(stages), m) for s in range(len(stages))]
    expected = judge.pipeline_starts(forward, backward, send[:-1], orders)
    timeline = replay(pipeline(forward, backward, send[:-1]), operations(name, len(stages), m), m)
    for order, starts, track in zip(orders, expected, timeline.tracks, strict=True):
        assert [starts[op] for op in order] == track.starts_s


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(dyadic, dyadic, dyadic), min_size=1, max_size=8),
    st.integers(1, 20),
    st.sampled_from(PIPELINES),
)
def test_no_lower_bound_is_violated_by_unequal_stages(stages, m, name):
    forward, backward, send = (list(times) for times in zip(*stages, strict=True))
    send = send[:-1]
    step_s = step_time_s(pipeline(forward, backward, send), name, m)
    for s in range(len(stages)):
        fill = sum(forward[:s]) + sum(send[:s])
        drain = sum(backward[:s]) + sum(send[:s])
        round_trip = sum(forward[s:]) + sum(backward[s:]) + 2 * sum(send[s:])
        held = {"gpipe": m, "1f1b": len(stages) - s, "1f1b-so": 2 * (len(stages) - 1 - s) + 1}[name]
        work = m * (forward[s] + backward[s])
        idle = max(0.0, round_trip - backward[s] - min(held, m) * forward[s])
        assert fill + work + drain <= step_s
        assert fill + work + idle + drain <= step_s
        assert fill + (m - 1) // held * round_trip + round_trip + drain <= step_s


def test_orders_that_wait_for_each_other_are_a_deadlock_named_by_its_operations():
    with pytest.raises(InvalidInputError) as error:
        replay(equal_pipeline(2, 1.0, 1.0, 0.0), [[0, 1, 2, 3], [2, 3, 0, 1]], 2)
    assert [(fault.code, fault.pointer) for fault in error.value.faults] == [
        ("deadlock", "/schedule/orders/0/1"),
        ("deadlock", "/schedule/orders/1/0"),
    ]
    assert error.value.faults[0].detail.startswith("0B0 waits forever for 1B0")
    assert error.value.faults[1].detail.startswith("1F1 waits forever for 0F1")


def test_a_backward_before_its_own_forward_is_a_deadlock():
    with pytest.raises(InvalidInputError) as error:
        replay(equal_pipeline(1, 1.0, 1.0, 0.0), [[1, 0]], 1)
    assert error.value.faults[0].detail.startswith("0B0 waits forever for 0F0")
