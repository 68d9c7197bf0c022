"""Runs a network layer by layer, each on what the layers before it made, and observes every layer on its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch

from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel, source_of
from bapipe_executor.loss import Loss
from bapipe_executor.profiling.clocks import Clock
from bapipe_executor.profiling.layer_run import LayerRun
from bapipe_executor.profiling.measurement import LayerSeconds, forward_flops, layer_seconds
from bapipe_executor.profiling.progress import LayerCounter
from bapipe_executor.profiling.signature import signature
from bapipe_executor.profiling.stash import Stash
from bapipe_executor.profiling.tensors import detached, value_bytes
from bapipe_executor.profiling.workspace import workspace_bytes


@dataclass(frozen=True)
class LayerObservation:
    """A layer at one micro-batch size: bytes are those of the whole micro-batch, `output_bytes` of each tensor made."""

    seconds: LayerSeconds
    flops: int
    output_bytes: tuple[int, ...]
    stash_bytes: int
    workspace_bytes: int

    def with_loss(self, loss: LayerObservation) -> LayerObservation:
        """The layer and the loss that reads its output, as one: what the loss makes is sent nowhere."""
        return replace(
            self,
            seconds=self.seconds + loss.seconds,
            flops=self.flops + loss.flops,
            workspace_bytes=max(self.workspace_bytes, loss.workspace_bytes),
        )

    def least(self, other: LayerObservation) -> LayerObservation:
        """The same layer observed again: the lesser times."""
        return replace(self, seconds=self.seconds.least(other.seconds))


class Sweep:
    """One pass over the layers with a micro-batch. The loss counts for the layer whose output it reads."""

    def __init__(
        self, model: LayeredModel, loss: Loss | None, batch: Batch, clock: Clock, autocast: torch.dtype | None = None
    ) -> None:
        self._model, self._loss, self._batch, self._clock, self._autocast = model, loss, batch, clock, autocast
        self._device = next(iter(batch.inputs.values())).device
        self._stash = Stash([*model.parameters(), *model.buffers(), *batch.inputs.values(), batch.target])
        self._known: dict[Any, LayerObservation] = {}
        self._values: dict[str, Any] = dict(batch.inputs)
        self._pending = Counter(source_of(read)[0] for reads in model.reads.values() for read in reads)
        self._pending[source_of(model.output)[0]] += 1

    def observe(self, counter: LayerCounter) -> dict[str, LayerObservation]:
        """Every layer in order."""
        found = {}
        for name in self._model.names:
            counter.next(name)
            found[name] = self._layer(name)
        stash = self._stash.bytes_by_layer
        return {name: replace(each, stash_bytes=stash[name]) for name, each in found.items()}

    def _layer(self, name: str) -> LayerObservation:
        reads = self._model.reads[name]
        arguments = [self._model.select(read, self._values) for read in reads]
        seen, made = self._run(LayerRun(name, self._model.layer(name), arguments, self._autocast))
        self._values[name] = made
        self._forget(reads)
        if self._loss is not None and source_of(self._model.output)[0] == name:
            output = self._model.select(self._model.output, self._values)
            seen = seen.with_loss(
                self._run(LayerRun(name, self._loss, (output, self._batch.target), self._autocast))[0]
            )
        return seen

    def _run(self, run: LayerRun) -> tuple[LayerObservation, Any]:
        with run.accumulating():
            with self._stash.recording(run.name) as made:
                made.append(run.forward())
            value = detached(tuple(made[0]) if isinstance(made[0], list) else made[0])
            made.clear()
        parts = tuple(map(value_bytes, value if isinstance(value, tuple) else (value,)))
        return self._recalled(run, parts), value

    def _recalled(self, run: LayerRun, output_bytes: tuple[int, ...]) -> LayerObservation:
        """Of layers that are alike, only the first is observed where the clock is exact."""
        if not self._clock.exact:
            return self._observed(run, output_bytes)
        key = signature(run)
        if key not in self._known:
            self._known[key] = self._observed(run, output_bytes)
        return self._known[key]

    def _observed(self, run: LayerRun, output_bytes: tuple[int, ...]) -> LayerObservation:
        with run.accumulating():
            workspace, flops = workspace_bytes(run, self._device), forward_flops(run)
        return LayerObservation(layer_seconds(run, self._clock), flops, output_bytes, 0, workspace)

    def _forget(self, reads: tuple[str, ...]) -> None:
        for read in reads:
            source = source_of(read)[0]
            self._pending[source] -= 1
            if not self._pending[source]:
                del self._values[source]
