"""A profile whose times are those of a run: what was measured of each stage, shared out over its layers."""

from __future__ import annotations

from collections.abc import Sequence

from bapipe.plan import Plan
from bapipe.problem import Layer, LayerTime, ModelProfile
from bapipe.simulator import simulate
from bapipe_executor.measured.comparison import Durations, measured_durations, predicted_durations
from bapipe_executor.measured.records import RankRecord


def calibrated(plan: Plan, ranks: Sequence[RankRecord]) -> ModelProfile:
    """The profile of `plan`, its times scaled so that every stage takes what it took in the run.

    A run tells the time of a stage, not of its layers: each of them is scaled by measured / predicted of its stage,
    forwards by F and backwards by B, or I and W where they were split, at every micro-batch size.
    """
    measured, predicted = measured_durations(ranks), predicted_durations(simulate(plan))
    factors = {key: seconds / predicted[key] for key, seconds in measured.items() if predicted[key]}
    stage_of = {layer: stage.index for stage in plan.stages for layer in stage.layers}
    profile = plan.request.profile
    layers = tuple(_scaled(layer, stage_of[layer.id], factors) for layer in profile.layers)
    return profile.model_copy(update={"layers": layers})


def _scaled(layer: Layer, stage: int, factors: Durations) -> Layer:
    return layer.model_copy(update={"times": tuple(_scaled_time(time, stage, factors) for time in layer.times)})


def _scaled_time(time: LayerTime, stage: int, factors: Durations) -> LayerTime:
    forward_s = time.forward_s * factors.get((stage, "F"), 1.0)
    whole = factors.get((stage, "B"))
    if time.input_gradient_s is None or time.weight_gradient_s is None:
        return time.model_copy(update={"forward_s": forward_s, "backward_s": time.backward_s * (whole or 1.0)})
    input_gradient_s = time.input_gradient_s * (whole or factors.get((stage, "I"), 1.0))
    weight_gradient_s = time.weight_gradient_s * (whole or factors.get((stage, "W"), 1.0))
    return time.model_copy(
        update={
            "forward_s": forward_s,
            "backward_s": input_gradient_s + weight_gradient_s,
            "input_gradient_s": input_gradient_s,
            "weight_gradient_s": weight_gradient_s,
        }
    )
