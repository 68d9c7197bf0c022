"""The parts of a split device that are tried for its forward engine: the balanced one, and a few fixed ones."""

from __future__ import annotations

import numpy as np

from bapipe.cuts import Array
from bapipe.schedules.forward_backward import FIXED_SHARES, LEAST_SHARE


def num_shares(engines: int) -> int:
    """How many shares are tried for each stage; 1 where devices are in one piece."""
    return 1 + len(FIXED_SHARES) if engines > 1 else 1


def forward_share(forward_s: Array, backward_s: Array, share: int) -> Array:
    """Share number `share` of stages: number 0 is balanced, F / (F + B), so that both engines take as long."""
    if share:
        return np.full(np.shape(forward_s), FIXED_SHARES[share - 1])
    both = forward_s + backward_s
    balanced = np.divide(forward_s, both, out=np.full(np.shape(both), 0.5), where=both > 0)
    return np.asarray(np.clip(balanced, LEAST_SHARE, 1 - LEAST_SHARE), dtype=float)


def split_seconds(forward_s: Array, backward_s: Array, share: int) -> tuple[Array, Array]:
    """Seconds of a forward and of a backward on their parts of the device."""
    part = forward_share(forward_s, backward_s, share)
    return forward_s / part, backward_s / (1 - part)
