"""Fits find the link that the times were made with, disturbed or not; meetings bring every pair together once."""

from __future__ import annotations

import random

import pytest

from bapipe_executor.probe.fit import fit_link
from bapipe_executor.probe.rounds import all_pairs, rounds

SIZES = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]


def test_exact_times_give_the_link_back() -> None:
    fit = fit_link([(size, 20e-6 + size / 3e9) for size in SIZES])

    assert fit.latency_s == pytest.approx(20e-6)
    assert fit.bandwidth_bytes_per_s == pytest.approx(3e9)
    assert fit.worst_error == pytest.approx(0, abs=1e-9)
    assert fit.seconds(6e9) == pytest.approx(2, rel=1e-3)


def test_two_disturbed_sizes_do_not_bend_the_line() -> None:
    times = [20e-6 + size / 3e9 for size in SIZES]
    times[1] *= 10
    times[4] *= 5

    fit = fit_link(list(zip(SIZES, times, strict=True)))

    assert fit.latency_s == pytest.approx(20e-6, rel=1e-6)
    assert fit.bandwidth_bytes_per_s == pytest.approx(3e9, rel=1e-6)
    assert fit.worst_error > 0.5


def test_noise_of_some_percent_moves_the_link_by_no_more() -> None:
    noise = random.Random(1)

    fit = fit_link([(size, (20e-6 + size / 3e9) * noise.uniform(1, 1.05)) for size in SIZES])

    assert fit.bandwidth_bytes_per_s == pytest.approx(3e9, rel=0.06)
    assert fit.latency_s == pytest.approx(20e-6, rel=0.06)


def test_latency_is_never_negative() -> None:
    assert fit_link([(1000, 1e-6), (2000, 4e-6), (4000, 1e-5)]).latency_s >= 0


@pytest.mark.parametrize("points", [[(8, 1.0)], [(8, 1.0), (8, 2.0)], []])
def test_one_size_is_not_enough(points: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fit_link(points)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_every_pair_meets_once_and_nobody_is_in_two_at_a_time(count: int) -> None:
    found = rounds(count)

    assert sorted(pair for meetings in found for pair in meetings) == all_pairs(count)
    for meetings in found:
        ranks = [rank for pair in meetings for rank in pair]
        assert len(ranks) == len(set(ranks))
        assert len(meetings) == count // 2
