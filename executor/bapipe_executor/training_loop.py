"""Step after step, with hooks in between."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.batch import Batch
from bapipe_executor.trainer import PipelineTrainer


@dataclass(frozen=True)
class StepReport:
    """A step that was done: its number from 1, its loss, and seconds of wall clock on this rank."""

    step: int
    loss: float
    step_s: float
    samples: int

    @property
    def samples_per_s(self) -> float:
        """The rate of this step."""
        return self.samples / self.step_s if self.step_s else 0.0


class Hook:
    """What happens around the steps, on every rank. Each method may be left as it is."""

    def before_step(self, trainer: PipelineTrainer) -> None:
        """A step is about to start; `trainer.steps` are done."""

    def after_step(self, trainer: PipelineTrainer, report: StepReport) -> None:
        """A step is done, weights updated."""

    def at_end(self, trainer: PipelineTrainer) -> None:
        """All steps are done."""


def train(trainer: PipelineTrainer, batches: Iterator[Batch], steps: int, hooks: Sequence[Hook] = ()) -> None:
    """Steps until `trainer.steps` is `steps`; `batches` start with the one of the next step.

    Raises:
        InvalidInputError: the batches end before, or one of them does not fit.
    """
    while trainer.steps < steps:
        batch = next(batches, None)
        if batch is None:
            detail = f"the data ended after {trainer.steps} of {steps} mini-batches; it must give one a step"
            raise InvalidInputError([Fault("too_short", detail, "/data")])
        for hook in hooks:
            hook.before_step(trainer)
        start_s = time.perf_counter()
        loss = trainer.step(batch)
        report = StepReport(trainer.steps, loss, time.perf_counter() - start_s, batch.size)
        for hook in hooks:
            hook.after_step(trainer, report)
    for hook in hooks:
        hook.at_end(trainer)
