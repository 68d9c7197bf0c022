"""Asynchronous 1F1B: no flush. Weights are updated after every backward, and micro-batch follows micro-batch for ever.

Stage s (from 0) of N has N - s micro-batches in flight, and keeps as many versions of its weights, so that a backward
meets those of its forward. A gradient is of weights that up to N - 1 updates have changed since: training is not what
it would be on one device.

Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019.
"""

from __future__ import annotations

from bapipe.schedules.base import Family
from bapipe.schedules.one_f_one_b import warm_up


def versions(stage: int, num_stages: int) -> int:
    """One for each micro-batch in flight."""
    return num_stages - stage


PIPEDREAM = Family("pipedream", warm_up, versions=versions)
