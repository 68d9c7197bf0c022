"""What of an emulation is allowed and probably not meant: warnings of its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bapipe.cost.fpga.plausibility import doubtful_figures
from bapipe.emulation.options import EmulationOptions
from bapipe.emulation.report import LinkReport
from bapipe.plan import Plan


def doubts(plan: Plan, options: EmulationOptions, links: Sequence[LinkReport]) -> Iterator[str]:
    """Figures of boards that look like those of another unit, arithmetic without a price, faults without effect."""
    used = {name for stage in plan.stages for name in stage.devices}
    cluster, dtype = plan.request.cluster, plan.request.dtype
    kinds = {device.kind for device in cluster.devices if device.id in used}
    yield from doubtful_figures(cluster, kinds)
    if any(link.sent_bytes and not link.busy_s for link in links):
        yield "links without bandwidth_bytes_per_s: transfers over them are taken to need no time"
    for kind in cluster.kinds:
        if kind.name in kinds and kind.fpga is not None and dtype not in kind.fpga.energy.mac_j:
            yield f"{kind.name} has no energy.mac_j for {dtype}: its multiply-accumulates are taken to cost no energy"
    faulty = [slow.device for slow in options.slow_boards] + [dead.device for dead in options.dead_boards]
    for name in faulty:
        if name not in used:
            yield f"board {name} has no stage: a fault of it changes nothing"
    joined = {frozenset((link.source, link.target)) for link in links}
    for lossy in options.lossy_links:
        if frozenset(lossy.devices) not in joined:
            yield f"nothing passes between {' and '.join(lossy.devices)}: losses of that link change nothing"
