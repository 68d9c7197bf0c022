"""Whole numbers stand for seconds and bytes without breaking a proof."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.formulations.ticks import LARGEST, byte_units, ticks_for
from judges.strategies import reproducible

durations = st.floats(1e-12, 1e6)


@settings(reproducible, max_examples=300)
@given(durations, st.floats(1.0, 1e6), st.lists(durations, min_size=1, max_size=50))
def test_a_sum_of_ticks_is_never_more_than_its_seconds_and_hardly_less(lower_s, ratio, seconds):
    ticks = ticks_for(lower_s, lower_s * ratio, len(seconds))
    wanted = [value for value in seconds if value <= lower_s * ratio]
    counted = sum(map(ticks.down, wanted)) * ticks.tick_s
    assert counted <= sum(wanted) * (1 + 1e-12)
    assert counted >= sum(wanted) * (1 - 1e-12) - ticks.error_s
    assert sum(map(ticks.down, seconds)) < LARGEST


@settings(reproducible, max_examples=100)
@given(durations, st.floats(1.0, 8.0), st.integers(1, 5000))
def test_rounding_stays_below_a_billionth_of_the_objective(lower_s, ratio, terms):
    assert ticks_for(lower_s, lower_s * ratio, terms).error_s <= 1e-9 * lower_s


def test_bytes_are_counted_as_they_are_where_that_is_possible():
    assert byte_units([1.0, 3.0], 100.0).per_byte == 1
    assert byte_units([0.5, 0.125], 100.0).per_byte == 8
    assert byte_units([0.5], 100.0).exact
    assert not byte_units([0.1], 100.0).exact


def test_bytes_that_cannot_be_counted_are_rounded_to_either_side():
    units = byte_units([0.1], 100.0)
    assert units.count(0.1, "down") < 0.1 * units.per_byte < units.count(0.1, "up")
