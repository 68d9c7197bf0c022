"""Bytes on a device: what stays for the whole step, what every micro-batch in flight keeps, and buffers.

Peak bytes of a stage with K micro-batches in flight of M (`peak_bytes`):

    static + K · stash + received activations + received gradients + sent activations + sent gradients + work space

static = parameters, gradients, master weights and optimizer state. How many are in flight follows from the device's
order of operations alone, so a plan fits, or does not, whatever the speed of the devices turns out to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bapipe.problem import Layer, PlanRequest, TiedParameters

A = TypeVar("A", float, NDArray[np.float64])
"""Bytes of one stage, or of many at once."""


ROUNDING = 1e-12
"""Relative: sums of fractional bytes in another order differ by less."""


@dataclass(frozen=True)
class StageMemory(Generic[A]):
    """Bytes of a stage. Those named per micro-batch are for one micro-batch of the plan's size."""

    static_bytes: A
    stash_bytes_per_microbatch: A
    input_bytes_per_microbatch: A
    output_bytes_per_microbatch: A
    workspace_bytes: A


def static_bytes(request: PlanRequest, layer: Layer) -> float:
    """Bytes that a layer holds for the whole step; in inference only its parameters."""
    if request.task == "inference":
        return float(layer.parameter_bytes)
    gradients = gradient_bytes(layer)
    parameters = layer.parameter_bytes / request.profile.bytes_per_parameter
    optimizer = parameters * request.optimizer_bytes_per_parameter
    return layer.parameter_bytes + gradients + layer.master_weight_bytes + optimizer


def optimizer_traffic_bytes(request: PlanRequest, layer: Layer) -> float:
    """Bytes that an optimizer step moves: state and weights are read and written, gradients read."""
    if request.task == "inference":
        return 0.0
    return 2 * static_bytes(request, layer) - gradient_bytes(layer)


def gradient_bytes(layer: Layer) -> int:
    """Bytes of a layer's own gradients."""
    return layer.parameter_bytes if layer.gradient_bytes is None else layer.gradient_bytes


def tied_static_bytes(request: PlanRequest, tied: TiedParameters) -> float:
    """Bytes of one copy of tied parameters: themselves, and in training their gradients and optimizer state."""
    if request.task == "inference":
        return float(tied.parameter_bytes)
    parameters = tied.parameter_bytes / request.profile.bytes_per_parameter
    return 2 * tied.parameter_bytes + parameters * request.optimizer_bytes_per_parameter


def tied_traffic_bytes(request: PlanRequest, tied: TiedParameters) -> float:
    """Bytes that the optimizer step of one copy moves, as `optimizer_traffic_bytes`."""
    return 2 * tied_static_bytes(request, tied) - tied.parameter_bytes


def stash_bytes_per_sample(request: PlanRequest, layer: Layer) -> float:
    """Bytes that a layer keeps per sample from its forward for its backward; none in inference."""
    if request.task == "inference":
        return 0.0
    stash = layer.stash_bytes_per_sample
    return layer.output_bytes_per_sample if stash is None else stash


def kept_bytes_per_sample(request: PlanRequest, layer: Layer, *, recomputed: bool) -> float:
    """`stash_bytes_per_sample`, or what is left of it until a recomputed layer's forward is executed again.

    Where `recompute_stash_bytes_per_sample` is not given, nothing is left: the input of the stage is in its buffer.
    """
    if not recomputed or request.task == "inference":
        return stash_bytes_per_sample(request, layer)
    return layer.recompute_stash_bytes_per_sample or 0.0


def num_buffers(policy: Literal["all", "in_flight"], in_flight: int, num_microbatches: int) -> tuple[int, int]:
    """(received activations, every other kind of message) for which a stage holds a buffer.

    `all`: one a micro-batch, as torch allocates. `in_flight`: a received activation is kept until its backward ends,
    and the next one may arrive meanwhile; of the others one is in use while the next is on its way.
    """
    if policy == "all":
        return num_microbatches, num_microbatches
    return min(num_microbatches, in_flight + 1), min(num_microbatches, 2)


def peak_bytes(
    stage: StageMemory[A],
    in_flight: int,
    num_microbatches: int,
    policy: Literal["all", "in_flight"],
    *,
    training: bool = True,
) -> A:
    """Most bytes that the stage occupies at once, without the device's reserve.

    A stage receives and sends activations over its input and output cuts, and in training their gradients back.
    """
    received, others = num_buffers(policy, in_flight, num_microbatches)
    activations = received * stage.input_bytes_per_microbatch + others * stage.output_bytes_per_microbatch
    gradients = others * training * (stage.input_bytes_per_microbatch + stage.output_bytes_per_microbatch)
    stash = in_flight * stage.stash_bytes_per_microbatch
    return stage.static_bytes + stash + activations + gradients + stage.workspace_bytes


def usable_bytes(limit_bytes: float) -> float:
    """What a peak is compared with: the limit, and as much as rounding may add to a peak that equals it."""
    return limit_bytes * (1 + ROUNDING)
