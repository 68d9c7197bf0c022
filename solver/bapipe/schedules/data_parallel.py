"""Data parallelism: one stage on every device, micro-batch k on replica k mod r, forward and backward in turn.

One micro-batch is in flight on each replica; its gradients add up until the one all-reduce of the mini-batch.
"""

from __future__ import annotations

from bapipe.schedules.base import Family


def warm_up(stage: int, num_stages: int, num_microbatches: int) -> int:
    """A backward follows its forward at once."""
    del stage, num_stages, num_microbatches
    return 0


DATA_PARALLEL = Family("data-parallel", warm_up, replicated=True)
