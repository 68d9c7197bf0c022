"""The balanced share of a split device: both of its engines take as long."""

from __future__ import annotations

import numpy as np

from bapipe.cuts import Array
from bapipe.schedules.forward_backward import LEAST_SHARE


def balanced_share(forward_s: Array, backward_s: Array) -> Array:
    """F / (F + B): the part of a device that its forward engine has."""
    both = forward_s + backward_s
    balanced = np.divide(forward_s, both, out=np.full(np.shape(both), 0.5), where=both > 0)
    return np.asarray(np.clip(balanced, LEAST_SHARE, 1 - LEAST_SHARE), dtype=float)
