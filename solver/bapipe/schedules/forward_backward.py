"""FBP-AS: every device split into a forward and a backward engine, which work side by side on other micro-batches.

Each engine has a part of the device, so that both take about as long as forward and backward together: T = F + B a
micro-batch where the forward has F / (F + B) of it. A stage s of N (from 0) keeps at most 2(N - s) micro-batches in
flight: a forward and a backward on each stage from s on. Devices that stream tensors to each other need no more; those
that store and forward, just as many.
"""

from __future__ import annotations

from bapipe.schedules.base import Family

FIXED_SHARES = (1 / 4, 1 / 3, 1 / 2)
"""Parts of a device that its forward engine may have, beside the balanced F / (F + B) of its stage."""

LEAST_SHARE = 1e-6
"""Of a device, what either engine has at least."""


def warm_up(stage: int, num_stages: int, num_microbatches: int) -> int:
    """Forwards before the first that may run beside a backward: one each way for every later stage."""
    return min(num_microbatches, 2 * (num_stages - 1 - stage))


FBP_AS = Family("fbp-as", warm_up, engines=2)
