"""A measurement: the best of several runs on one core, beside the limit that it should stay under."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """Seconds of the fastest run; `limit_s` None: no limit is set. `note`: what else was found; `fault`: what is wrong
    with it.
    """

    name: str
    seconds: float
    limit_s: float | None = None
    note: str = ""
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether the limit, if any, is kept, and nothing is wrong."""
        return not self.fault and (self.limit_s is None or self.seconds < self.limit_s)


def measure(name: str, work: Callable[[], object], limit_s: float | None = None, repeats: int = 5) -> Measurement:
    """Runs `work` a few times. The fastest run is the one least disturbed by other processes."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return Measurement(name, min(seconds), limit_s)
