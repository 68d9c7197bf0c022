"""Faults as lines: all of a few, and of many alike the first and how many more there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from bapipe.errors import Fault

MOST_ALIKE = 5
NUMBER = re.compile(r"/\d+(?=/|$)")


def fault_lines(faults: Sequence[Fault]) -> list[str]:
    """A line a fault, in their order. Faults with one code and the same fields, whatever the items, are alike."""
    counts = Counter(map(_kind, faults))
    seen = Counter[tuple[str, str]]()
    lines = []
    for fault in faults:
        kind = _kind(fault)
        seen[kind] += 1
        if seen[kind] <= MOST_ALIKE:
            lines.append(str(fault))
        elif seen[kind] == MOST_ALIKE + 1:
            lines.append(f"{kind[1] or '/'}: {counts[kind] - MOST_ALIKE} more like these [{fault.code}]")
    return lines


def _kind(fault: Fault) -> tuple[str, str]:
    return fault.code, NUMBER.sub("/*", fault.pointer)
