"""Figures of boards and of links between them that are possible, and that no board of our days has: probably of another
unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from bapipe.cost.transfer import link_between
from bapipe.problem import Cluster

USUAL = {
    "clock_hz": (1e6, 1e10, "hertz: 300 MHz are 3e8"),
    "off_chip_bandwidth_bytes_per_s": (1e7, 1e14, "bytes a second: 38.4 GB/s are 3.84e10"),
    "off_chip_bytes": (1e6, 1e14, "bytes: 4 GiB are 4294967296"),
    "on_chip_bytes": (1e4, 1e11, "bytes: 40 MiB are 41943040"),
    "dsp_slices": (1, 1e6, "slices, not operations a second"),
}
"""Least and most of what boards have, and the unit that is meant; nothing at all is always believed."""

LEAST_LINK_BYTES_PER_S = 1e5
MOST_LATENCY_S = 0.1


def doubtful_figures(cluster: Cluster, kinds: Collection[str]) -> Iterator[str]:
    """A sentence for each figure of the FPGAs among `kinds`, and of links between them, that is far from usual."""
    for kind in cluster.kinds:
        for field, (least, most, unit) in USUAL.items() if kind.fpga is not None and kind.name in kinds else ():
            value = getattr(kind.fpga, field)
            if value and not least <= value <= most:
                yield f"{kind.name} has a {field} of {value:g}, which no board has; it is in {unit}"
    neighbours = {link_between(cluster, a, b) for a, b in pairwise(cluster.devices) if {a.kind, b.kind} <= set(kinds)}
    for link in sorted(neighbours, key=str):
        if (link.bandwidth_bytes_per_s or LEAST_LINK_BYTES_PER_S) < LEAST_LINK_BYTES_PER_S:
            yield f"a link has {link.bandwidth_bytes_per_s:g} bytes_per_s: 100 Gb/s are 1.25e10 bytes a second"
        if link.latency_s > MOST_LATENCY_S:
            yield f"a link has a latency_s of {link.latency_s:g}: a microsecond is 1e-6"
