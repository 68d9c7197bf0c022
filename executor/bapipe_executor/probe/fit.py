"""Latency and bandwidth of a link from how long transfers of several sizes took."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

Point = tuple[int, float]
"""Bytes, seconds."""


@dataclass(frozen=True)
class LinkFit:
    """t(s) = latency + s / bandwidth, and by which share of it measured times lie off: the median, and the worst."""

    latency_s: float
    bandwidth_bytes_per_s: float
    median_error: float
    worst_error: float

    def seconds(self, size_bytes: float) -> float:
        """How long a transfer of this size takes."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s


def fit_link(points: Sequence[Point]) -> LinkFit:
    """The line with the least sum of relative errors |t - t(s)| / t, of those with no negative latency.

    A few sizes that were disturbed do not bend it, as they would a least-squares fit. Such a line goes through two of
    the points, or through one and the origin, so all of those are tried.

    Raises:
        ValueError: fewer than two sizes.
    """
    if len({size for size, _ in points}) < 2:
        raise ValueError("a link is fitted to transfers of two sizes or more")
    lines = [line for line in _lines(points) if line[0] >= 0 and line[1] > 0]
    latency_s, seconds_per_byte = min(lines, key=lambda line: sum(_errors(points, *line)))
    errors = sorted(_errors(points, latency_s, seconds_per_byte))
    return LinkFit(latency_s, 1 / seconds_per_byte, statistics.median(errors), errors[-1])


def _lines(points: Sequence[Point]) -> Iterable[tuple[float, float]]:
    """(seconds at 0, seconds a byte) of every line through two points, or through one and the origin."""
    for (size, seconds), (other_size, other_seconds) in combinations(points, 2):
        if size != other_size:
            slope = (other_seconds - seconds) / (other_size - size)
            yield seconds - slope * size, slope
    yield from ((0.0, seconds / size) for size, seconds in points if size)


def _errors(points: Sequence[Point], latency_s: float, seconds_per_byte: float) -> list[float]:
    return [abs(seconds - latency_s - seconds_per_byte * size) / seconds for size, seconds in points]
