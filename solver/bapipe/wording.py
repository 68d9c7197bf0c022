"""A plan in a few words: what runs where."""

from __future__ import annotations

from collections.abc import Sequence

from bapipe.plan import Schedule, Stage
from bapipe.quantities import counted


def arrangement_text(schedule: Schedule, stages: Sequence[Stage]) -> str:
    """`1f1b over 4 stages, 16 micro-batches of 8 samples`; one stage is no pipeline, and is not called one."""
    count, size = schedule.num_microbatches, counted(schedule.microbatch_size, "sample")
    if len(stages) > 1:
        return f"{schedule.name} over {counted(len(stages), 'stage')}, {counted(count, 'micro-batch')} of {size}"
    devices = sum(len(stage.devices) for stage in stages)
    if devices == 1:
        return f"one device, {counted(count, 'micro-batch')} of {size}"
    return f"{schedule.name} on {counted(devices, 'device')}, {share_text(count, devices)} of {size} each"


def share_text(count: int, devices: int) -> str:
    """How many of `count` micro-batches a device has when they go round: `1 micro-batch`, `1 or 2 micro-batches`."""
    least, rest = divmod(count, devices)
    return f"{least} or {counted(least + 1, 'micro-batch')}" if rest else counted(least, "micro-batch")
