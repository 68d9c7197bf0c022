"""Figures as people read them."""

from __future__ import annotations

import pytest

from bapipe.quantities import counted, factor_text, gap_text, percent_text, seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (1.04e-17, "0 s"), (-1e-18, "0 s"), (2e-9, "2.000 ns"), (0.0123456, "12.35 ms"), (90.0, "90.00 s")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.00 %"), (4e-5, "0.00 %"), (1e-15, "0.00 %"), (0.05, "5.00 %"), (0.5, "50.0 %")]
)
def test_percent(share: float, text: str) -> None:
    assert percent_text(share) == text


@pytest.mark.parametrize(
    ("gap", "text"),
    [(None, "unknown"), (0.0, "0.00 %"), (1e-12, "0.00 %"), (1e-6, "under 0.01 %"), (0.0123, "1.23 %")],
)
def test_a_gap_that_is_left_never_reads_as_none(gap: float | None, text: str) -> None:
    assert gap_text(gap) == text


@pytest.mark.parametrize(
    ("factor", "text"), [(1.0, "1.00×"), (1.0666, "1.07×"), (25.06, "25.1×"), (250.25, "250×"), (12345.6, "12346×")]
)
def test_factors_have_three_digits(factor: float, text: str) -> None:
    assert factor_text(factor) == text


@pytest.mark.parametrize(("count", "text"), [(1, "1 micro-batch"), (2, "2 micro-batches"), (0, "0 micro-batches")])
def test_counted(count: int, text: str) -> None:
    assert counted(count, "micro-batch") == text
