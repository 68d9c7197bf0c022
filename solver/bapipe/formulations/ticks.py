"""Seconds and bytes as whole numbers, rounded so that a proof over the numbers is one over seconds and bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Rounding = Literal["down", "up"]

PRECISION = 2.0**-31
"""Relative: less than 1e-9 / 2, so that bounds and re-timed values stay within 1e-9 of each other."""

LARGEST = 2.0**60
"""Sums of whole numbers that a model is given stay below."""

FINEST = 16
"""Bytes are counted in units of 2^-16 at the finest."""


@dataclass(frozen=True)
class Ticks:
    """Seconds in ticks of `tick_s`, a power of two, so that dividing by it is exact.

    Every duration is rounded down: a load of `terms` of them is at most `error_s` less than in seconds, never more.
    Durations beyond `most_ticks` are cut to one more than that: nothing that takes them is wanted.
    """

    tick_s: float
    most_ticks: int
    terms: int

    @property
    def error_s(self) -> float:
        """The most that rounding takes from a load."""
        return self.terms * self.tick_s

    def down(self, seconds: float) -> int:
        """Ticks of a duration."""
        return math.floor(min(seconds / self.tick_s, self.most_ticks + 1))


def ticks_for(lower_s: float, upper_s: float, terms: int) -> Ticks:
    """Ticks for loads of so many terms between bounds: fine enough for `PRECISION` of the lower one if sums of terms up
    to the upper one can be counted; otherwise as fine as that allows.
    """
    finest = lower_s * PRECISION / terms
    coarsest = upper_s * (terms + 2) / LARGEST
    tick_s = 2.0 ** math.floor(math.log2(max(finest, 2 * coarsest, 1e-300)))
    return Ticks(tick_s, math.floor(upper_s * (1 + 1e-12) / tick_s) + 1, terms)


@dataclass(frozen=True)
class ByteUnits:
    """Bytes in units of 1 / `per_byte`; `exact` where every size of a model is a whole number of them."""

    per_byte: int
    exact: bool

    def count(self, size: float, rounding: Rounding) -> int:
        """Units of a size."""
        scaled = size * self.per_byte
        return math.floor(scaled) if rounding == "down" else math.ceil(scaled)


def byte_units(sizes: Iterable[float], total_bytes: float) -> ByteUnits:
    """The coarsest units of which all `sizes` are whole numbers, if they are not too fine for their total."""
    known = list(sizes)
    for bits in range(FINEST + 1):
        per_byte = 1 << bits
        if total_bytes * per_byte > LARGEST / 2:
            return ByteUnits(max(1, per_byte >> 1), False)
        if all((size * per_byte).is_integer() for size in known):
            return ByteUnits(per_byte, True)
    return ByteUnits(1 << FINEST, False)
