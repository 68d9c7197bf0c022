"""Times and bytes of one layer at one micro-batch size."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from bapipe_executor.profiling.attention_flops import ATTENTION_FLOPS
from bapipe_executor.profiling.clocks import Clock
from bapipe_executor.profiling.kernels import separate_operations
from bapipe_executor.profiling.layer_run import LayerRun, differentiable_outputs


@dataclass(frozen=True)
class LayerSeconds:
    """The least of many measurements. `input_gradient_s` is the part of the backward on which the stage before waits.

    `spread` says by how much the median exceeds the least, as a share of it, in the forward or the backward.
    """

    forward_s: float
    backward_s: float
    input_gradient_s: float
    spread: float

    def __add__(self, other: LayerSeconds) -> LayerSeconds:
        return LayerSeconds(
            self.forward_s + other.forward_s,
            self.backward_s + other.backward_s,
            self.input_gradient_s + other.input_gradient_s,
            max(self.spread, other.spread),
        )

    def least(self, other: LayerSeconds) -> LayerSeconds:
        """The lesser of two measurements of the same work, part by part."""
        return LayerSeconds(
            min(self.forward_s, other.forward_s),
            min(self.backward_s, other.backward_s),
            min(self.input_gradient_s, other.input_gradient_s),
            min(self.spread, other.spread),
        )


def layer_seconds(run: LayerRun, clock: Clock) -> LayerSeconds:
    """Times the layer's forward, its whole backward, and the gradient of its inputs alone.

    The gradient of the weights is what is left of the backward: it uses what that of the inputs has computed.
    """
    with run.accumulating():
        samples = [_pass(run, clock) for _ in range(clock.warm_ups + clock.repeats)][clock.warm_ups :]
        forwards, backwards = ([sample[part] for sample in samples] for part in (0, 1))
        forward_s, backward_s = min(forwards), min(backwards)
        return LayerSeconds(
            forward_s,
            backward_s,
            _input_gradient_s(run, clock, backward_s),
            max(_spread(forwards), _spread(backwards)),
        )


def forward_flops(run: LayerRun) -> int:
    """FLOPs of the forward's products, convolutions and attention, as operations that are counted one by one.

    Fused recurrent kernels have no formula, so they are switched off, and their products counted.
    """
    counter = FlopCounterMode(display=False, custom_mapping=dict(ATTENTION_FLOPS))
    with separate_operations(), counter:
        run.forward()
    return counter.get_total_flops()


def _pass(run: LayerRun, clock: Clock) -> tuple[float, float]:
    forward_s, made = clock.time(run.forward)
    outputs, gradients = differentiable_outputs(made)
    if not outputs:
        return forward_s, 0.0
    return forward_s, clock.time(lambda: run.backward(outputs, gradients))[0]


def _input_gradient_s(run: LayerRun, clock: Clock, backward_s: float) -> float:
    """At most the whole backward; without parameters all of it, without differentiable inputs nothing."""
    if not run.inputs:
        return 0.0
    if not run.parameters:
        return backward_s
    return min(backward_s, *(_input_gradient_pass(run, clock.time) for _ in range(clock.repeats)))


def _input_gradient_pass(run: LayerRun, time: Callable[[Callable[[], Any]], tuple[float, Any]]) -> float:
    outputs, gradients = differentiable_outputs(run.forward())
    return time(lambda: run.input_gradients(outputs, gradients))[0] if outputs else 0.0


def _spread(samples: list[float]) -> float:
    least = min(samples)
    return statistics.median(samples) / least - 1 if least > 0 else 0.0
