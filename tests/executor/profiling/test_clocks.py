"""On a GPU the larger of two times counts: what it computes, and what the host takes to launch that."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from bapipe_executor.profiling import clocks  # noqa: E402


class Events:
    """Stands in for `torch.cuda`: every span between two events takes `device_s`, all calls are noted."""

    def __init__(self, device_s: float) -> None:
        self.device_s = device_s
        self.calls: list[str] = []

    def synchronize(self, device: Any) -> None:
        self.calls.append("synchronize")

    def _sleep(self, cycles: int) -> None:
        self.calls.append("filler")

    def Event(self, *, enable_timing: bool) -> Events.Mark:
        return Events.Mark(self)

    class Mark:
        def __init__(self, owner: Events) -> None:
            self.owner = owner

        def record(self) -> None:
            self.owner.calls.append("record")

        def synchronize(self) -> None:
            self.owner.calls.append("wait")

        def elapsed_time(self, end: Events.Mark) -> float:
            return self.owner.device_s * 1e3


def timed(monkeypatch: pytest.MonkeyPatch, *, device_s: float, host_s: float) -> tuple[float, Any, Events, Any]:
    events = Events(device_s)
    now = iter([10.0, 10.0 + host_s])
    monkeypatch.setattr(clocks.torch, "cuda", events)
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: next(now))
    clock = clocks.CudaClock(3, torch.device("cpu"))
    seconds, made = clock.time(lambda: events.calls.append("work") or "made")
    return seconds, made, events, clock


def test_the_gpu_is_kept_busy_while_the_host_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, made, events, clock = timed(monkeypatch, device_s=2e-3, host_s=1e-4)

    assert seconds == pytest.approx(2e-3)
    assert made == "made"
    assert events.calls == ["synchronize", "filler", "record", "work", "record", "wait"]
    assert (clock.timed, clock.launch_bound) == (1, 0)


def test_launches_that_take_longer_are_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, _, _, clock = timed(monkeypatch, device_s=1e-5, host_s=1e-4)

    assert seconds == pytest.approx(1e-4)
    assert (clock.timed, clock.launch_bound) == (1, 1)


def test_a_single_thread_is_timed_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks.torch, "get_num_threads", lambda: 1)
    thread = iter([1.0, 1.25])
    monkeypatch.setattr(clocks.time, "thread_time", lambda: next(thread))

    assert clocks.CpuClock(1).time(lambda: 7) == (0.25, 7)
