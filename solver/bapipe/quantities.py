"""Seconds, bytes and shares as people read them."""

from __future__ import annotations

ROUNDING_S = 1e-13
"""Seconds below which a time is what rounding left of a sum that is zero."""

GAP_TOLERANCE = 1e-9
"""The relative tolerance within which a plan is called optimal."""

SECOND_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def seconds_text(seconds: float, digits: int = 4) -> str:
    """`digits` significant digits in the largest unit that is not below 1: `12.35 ms`; what rounding left is `0 s`."""
    for size, unit in SECOND_UNITS:
        if seconds >= size:
            return f"{_significant(seconds / size, digits)} {unit}"
    return "0 s" if abs(seconds) < ROUNDING_S else f"{seconds:.3g} s"


def joules_text(joules: float) -> str:
    """Three significant digits in the largest unit that is not below 1: `399 mJ`."""
    for size, unit in SECOND_UNITS:
        if joules >= size:
            return f"{_significant(joules / size, 3)} {unit.replace('s', 'J')}"
    return f"{joules:.3g} J"


def bytes_text(size: float) -> str:
    """Binary units, three or more significant digits: `15.2 GiB`."""
    for scale, unit in BYTE_UNITS:
        if size >= scale:
            return f"{_significant(size / scale, 3)} {unit}"
    return f"{size:.0f} B"


def rate_text(bytes_per_s: float) -> str:
    """Decimal units, as links are sold: `12.0 GB/s`."""
    for scale, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= scale:
            return f"{_significant(bytes_per_s / scale, 3)} {unit}"
    return f"{bytes_per_s:.3g} B/s"


def percent_text(share: float) -> str:
    """A share of 1 in percent: `12.3 %`, `0.02 %`."""
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def gap_text(gap: float | None) -> str:
    """A gap in percent. One that is left never reads as none; one within the tolerance of a proof is none."""
    if gap is None:
        return "unknown"
    return "under 0.01 %" if GAP_TOLERANCE < gap < 5e-5 else percent_text(gap)


def factor_text(factor: float) -> str:
    """Three or more significant digits: `1.07×`, `25.1×`, `250×`."""
    return f"{_significant(factor, 3)}×"


def counted(count: int, noun: str) -> str:
    """`1 sample`, `8 samples`."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _significant(value: float, digits: int) -> str:
    whole = len(str(int(value)))
    return f"{value:.{max(0, digits - whole)}f}"
