"""Seconds, bytes and shares as people read them."""

from __future__ import annotations

SECOND_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def seconds_text(seconds: float, digits: int = 4) -> str:
    """`digits` significant digits in the largest unit that is not below 1: `12.35 ms`."""
    for size, unit in SECOND_UNITS:
        if seconds >= size:
            return f"{_significant(seconds / size, digits)} {unit}"
    return "0 s" if seconds == 0 else f"{seconds:.3g} s"


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
    """A share of 1 in percent: `12.3 %`; a small share that is not zero never reads as zero."""
    if 0 < share < 5e-5:
        return f"{100 * share:.1e} %"
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def counted(count: int, noun: str) -> str:
    """`1 sample`, `8 samples`."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _significant(value: float, digits: int) -> str:
    whole = len(str(int(value)))
    return f"{value:.{max(0, digits - whole)}f}"
