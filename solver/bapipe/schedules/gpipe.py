"""GPipe: all forwards, then all backwards, both from micro-batch 0 up. Every micro-batch is in flight.

Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", arXiv 1811.06965.
"""

from __future__ import annotations

from bapipe.schedules.base import Family


def warm_up(stage: int, num_stages: int, num_microbatches: int) -> int:
    """Every forward comes before the first backward."""
    del stage, num_stages
    return num_microbatches


GPIPE = Family("gpipe", warm_up)
