"""Measures the operations of a rank while they are executed: when each starts and ends, and the bytes that are kept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bapipe_executor.measured.records import RankRecord, StepRecord, Timed, rank_file
from bapipe_executor.measured.saved_bytes import SavedBytes
from bapipe_executor.observer import Observer
from bapipe_executor.trainer import PipelineTrainer
from bapipe_executor.training_loop import Hook, StepReport

KEPT_STEPS = 20
"""Of how many steps, the last ones, operations are kept."""


class Recorder(Observer):
    """`inner` is told of everything, too, and what it adds to an operation counts as part of it."""

    def __init__(self, device: torch.device, inner: Observer | None = None) -> None:
        self.saved = SavedBytes()
        self._clock = _CudaClock() if device.type == "cuda" else _CpuClock()
        self._inner = inner or Observer()
        self._marks: list[tuple[str, Any, Any]] = []

    def started(self, given: Sequence[Tensor]) -> None:
        self.saved.leave_out_for_now(given)
        self._inner.started(given)

    def before(self, name: str) -> None:
        self._inner.before(name)

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        with self._inner.around(name), self.saved.recording():
            start = self._clock.now()
            yield
        self._marks.append((name, start, self._clock.now()))

    def held(self, tensor: Tensor) -> None:
        self.saved.hold(tensor)
        self._inner.held(tensor)

    def finished(self) -> None:
        self._inner.finished()

    def taken(self, origin_s: float) -> tuple[Timed, ...]:
        """The operations since the last call, by their start; seconds from `origin_s` of `time.perf_counter`."""
        seconds = self._clock.seconds
        marks, self._marks = self._marks, []
        return tuple(
            Timed(name=name, start_s=seconds(start) - origin_s, end_s=seconds(end) - origin_s)
            for name, start, end in marks
        )


class Recording(Hook):
    """Keeps what a recorder measured of the last steps, and leaves it in `folder` at the end."""

    def __init__(self, recorder: Recorder, folder: Path) -> None:
        self.recorder, self.folder = recorder, folder
        self._steps: deque[StepRecord] = deque(maxlen=KEPT_STEPS)
        self._origin_s: float | None = None
        self._start_s = 0.0

    def before_step(self, trainer: PipelineTrainer) -> None:
        if self._origin_s is None:
            self.recorder.saved.leave_out((*trainer.module.parameters(), *trainer.module.buffers()))
            dist.barrier()
            self._origin_s = time.perf_counter()
        self._start_s = time.perf_counter()

    def after_step(self, trainer: PipelineTrainer, report: StepReport) -> None:
        assert self._origin_s is not None
        start_s, origin_s = self._start_s, self._origin_s
        whole = Timed(name="step", start_s=start_s - origin_s, end_s=start_s + report.step_s - origin_s)
        self._steps.append(StepRecord(step=report.step, whole=whole, operations=self.recorder.taken(origin_s)))

    def at_end(self, trainer: PipelineTrainer) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        record = RankRecord(
            rank=trainer.rank,
            device=trainer.placement.devices[trainer.rank],
            steps=tuple(self._steps),
            peak_saved_bytes=self.recorder.saved.peak,
        )
        rank_file(self.folder, trainer.rank).write_text(record.model_dump_json(), encoding="utf-8")
        dist.barrier()


class _CpuClock:
    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, mark: float) -> float:
        return mark


class _CudaClock:
    """Events in the stream, which say when the device came that far; the first is tied to the time of the CPU."""

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self._origin, self._origin_s = self.now(), time.perf_counter()

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, mark: Any) -> float:
        mark.synchronize()
        return self._origin_s + float(self._origin.elapsed_time(mark)) / 1e3
