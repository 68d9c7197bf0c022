import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.schedules import operations
from bapipe.simulator import simulate
from bapipe.simulator.period import period_s
from bapipe.simulator.replay import replay
from judges.instances import cluster, even_request, layer, make_plan, pipeline, request

dyadic = st.integers(0, 64).map(lambda x: x / 8)


def repeated(cost, orders, num_microbatches, steps):
    """The end of the last of `steps` steps that follow each other."""
    timeline = replay(cost, orders, num_microbatches)
    for _ in range(steps - 1):
        timeline = replay(cost, orders, num_microbatches, busy=timeline.busy)
    return max(timeline.busy.device_s)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(dyadic, dyadic, dyadic, st.integers(0, 64).map(float)), min_size=1, max_size=5),
    st.integers(1, 6),
    st.sampled_from(("gpipe", "1f1b", "1f1b-so")),
)
def test_the_period_is_the_rate_of_many_steps_in_a_row(stages, m, name):
    forward, backward, send, optimizer = (list(times) for times in zip(*stages, strict=True))
    cost = pipeline(forward, backward, send[:-1], optimizer)
    orders = operations(name, len(stages), m)
    found = period_s(cost, replay(cost, orders, m), m, "overlapped")
    # 60 is a multiple of 1 to 5: whatever the cycle of the repetition, its mean comes out exactly
    assert 60 * found == pytest.approx(repeated(cost, orders, m, 100) - repeated(cost, orders, m, 40), rel=1e-12)


def test_a_step_is_the_period_when_the_first_stage_ends_last():
    simulation = simulate(make_plan(even_request(4, 8), [[f"l{k}"] for k in range(4)], "1f1b", 8))
    assert simulation.period_s == simulation.step_time_s == 33.0


def test_a_late_update_of_the_last_stage_hides_behind_the_next_fill():
    cost = pipeline([1.0] * 3, [1.0] * 3, [0.0] * 2, [0.0, 0.0, 4.0])
    first = replay(cost, operations("1f1b", 3, 2), 2)
    assert first.step_time_s == 10.0
    assert period_s(cost, first, 2, "overlapped") == 8.0


def test_an_update_that_outlasts_the_next_fill_delays_every_step():
    cost = pipeline([1.0] * 3, [1.0] * 3, [0.0] * 2, [0.0, 0.0, 10.0])
    first = replay(cost, operations("1f1b", 3, 2), 2)
    assert period_s(cost, first, 2, "overlapped") == 2 * 2 + 10.0


def test_inference_repeats_at_the_pace_of_its_slowest_stage():
    layers = [layer("a", 1.0), layer("b", 3.0), layer("c", 2.0)]
    simulation = simulate(make_plan(request(layers, 3, 4, task="inference"), [["a"], ["b"], ["c"]], "gpipe", 4))
    assert (simulation.step_time_s, simulation.period_s) == (1 + 4 * 3 + 2, 12.0)


def test_data_parallel_steps_do_not_overlap():
    asked = request([layer("a", parameter_bytes=8)], cluster(2, memory_bandwidth_bytes_per_s=8.0), 2)
    simulation = simulate(make_plan(asked, [["a"]], "data-parallel", 2))
    assert simulation.period_s == simulation.step_time_s == 3.0 + (2 * (8 + 16) + 8) / 8


def alternating():
    """Steps that take turns: updates and slow transfers make every second step the same, not every one."""
    return pipeline([0.25, 0.0, 0.25], [3.5, 0.0, 0.25], [0.0, 10.25], [0.0, 0.0, 36.25]), operations("1f1b-so", 3, 6)


def test_steps_that_repeat_in_pairs_have_the_mean_of_both_as_period():
    cost, orders = alternating()
    found = period_s(cost, replay(cost, orders, 6), 6, "overlapped")
    assert found == 82.0
    assert 60 * found == repeated(cost, orders, 6, 100) - repeated(cost, orders, 6, 40)


def test_without_a_repetition_in_time_the_mean_over_the_replayed_steps_is_taken(monkeypatch):
    monkeypatch.setattr("bapipe.simulator.period.LONGEST_TRANSIENT", 1)
    cost, orders = alternating()
    found = period_s(cost, replay(cost, orders, 6), 6, "overlapped")
    assert found == repeated(cost, orders, 6, 2) - repeated(cost, orders, 6, 1)
