"""Clocks that say how long a piece of work takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

FILLER_CYCLES = 1_000_000
"""Keeps a GPU busy for about half a millisecond, while the host queues the work to be timed behind it."""


class Clock(Protocol):
    """Times work. `repeats`: how often the same work is worth timing; `warm_ups`: how often to do it before.

    `exact`: the same work always takes the same time.
    """

    repeats: int
    warm_ups: int
    exact: bool

    def time(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds of `work`, and what it returned."""
        ...


class CpuClock:
    """Work on the CPU, which is done when it returns.

    With one thread it is that thread's own time that counts: what else the machine does meanwhile is not in it.
    """

    exact = False

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.warm_ups = 2
        self._now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def time(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds of the thread, or of the wall clock where there are several."""
        started = self._now()
        made = work()
        return self._now() - started, made


class CudaClock:
    """Work on a GPU: the larger of what the GPU takes for it and what the host takes to launch it.

    Layers follow each other without a pause, so the host's time for one hides behind the GPU's for the one before;
    where launching takes longer, the host is what the step waits for. `launch_bound` counts the work of that kind.
    """

    exact = False

    def __init__(self, repeats: int, device: torch.device) -> None:
        self.repeats = repeats
        self.warm_ups = 3
        self.timed = 0
        self.launch_bound = 0
        self._device = device

    def time(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds by CUDA events, behind a filler that lets the host get ahead, or by the host's clock if more."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self._device)
        torch.cuda._sleep(FILLER_CYCLES)  # type: ignore[no-untyped-call]
        begin.record()
        started = time.perf_counter()
        made = work()
        host_s = time.perf_counter() - started
        end.record()
        end.synchronize()
        device_s = begin.elapsed_time(end) / 1e3
        self.timed += 1
        self.launch_bound += host_s > device_s
        return max(host_s, device_s), made
