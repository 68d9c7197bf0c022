"""The most bytes that a device holds at once, from its order of operations alone.

    static + stashes + buffers + work space

Stashes are followed operation by operation: a forward leaves what its stage keeps, a recomputation restores the full
stash before the backward, the end of the backward (B, or W where it is split) frees it. Buffers are those of
`bapipe.cost.memory.num_buffers`, for every stage of the device and everything that reaches or leaves the device; a
gradient stays in its buffer from the start of B or I to the end of B or W. With two engines a backward may still run
beside whatever comes after it in the order, until the next backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bapipe.cost.memory import num_buffers
from bapipe.lowering import Operation


@dataclass(frozen=True)
class Held:
    """Bytes of a stage on a device; those of one micro-batch but for `workspace_bytes`.

    `kept_bytes` is what is left of `stash_bytes` between a forward and its recomputation.
    """

    stash_bytes: float
    kept_bytes: float
    input_bytes: float
    output_bytes: float
    workspace_bytes: float


@dataclass(frozen=True)
class Usage:
    """Of one stage on a device: micro-batches, most of them in flight, and most whose gradient is in use."""

    microbatches: int
    in_flight: int
    gradients: int


def peak_of_device(
    order: Sequence[Operation],
    stages: dict[int, Held],
    static_bytes: float,
    policy: Literal["all", "in_flight"],
    *,
    training: bool,
    engines: int = 1,
) -> float:
    """The peak of a device that executes `order`, without its reserve. `stages` are all that it has."""
    buffers = 0.0
    for stage, held in stages.items():
        usage = usage_of(
            [operation for operation in order if operation.stage == stage], training=training, engines=engines
        )
        buffers += _buffer_bytes(held, usage, policy, training=training)
    stashes = _most_stashed(order, stages, engines) if training else 0.0
    return static_bytes + stashes + buffers + max(held.workspace_bytes for held in stages.values())


def usage_of(order: Sequence[Operation], *, training: bool, engines: int = 1) -> Usage:
    """Counts over the operations of one stage."""
    count = sum(operation.kind == "F" for operation in order)
    if not training:
        return Usage(count, min(1, count), 0)
    split = any(operation.kind == "W" for operation in order)
    live = in_flight = held = gradients = running = 0
    for operation in order:
        done = operation.kind == ("W" if split else "B")
        if done:
            live, running = live - running, 0
        live += operation.kind == "F"
        held += operation.kind in "BI"
        in_flight, gradients = max(in_flight, live), max(gradients, held)
        held -= done
        if engines == 1:
            live -= done
        else:
            running += done
    return Usage(count, in_flight, gradients)


def _buffer_bytes(held: Held, usage: Usage, policy: Literal["all", "in_flight"], *, training: bool) -> float:
    received, others = num_buffers(policy, usage.in_flight, usage.microbatches)
    activations = received * held.input_bytes + others * held.output_bytes
    if not training:
        return activations
    gradients, _ = num_buffers(policy, usage.gradients, usage.microbatches)
    return activations + gradients * held.output_bytes + others * held.input_bytes


def _most_stashed(order: Sequence[Operation], stages: dict[int, Held], engines: int) -> float:
    apart = {operation.stage for operation in order if operation.kind == "R"}
    split = {operation.stage for operation in order if operation.kind == "W"}
    now = most = running = 0.0
    for stage, kind, _ in order:
        held = stages[stage]
        done = kind == "W" or (kind == "B" and stage not in split)
        if done:
            now, running = now - running, 0.0
        if kind == "F":
            now += held.kept_bytes
        if kind == "R" or (kind in "BI" and stage not in apart):
            now += held.stash_bytes - held.kept_bytes
        most = max(most, now)
        if done and engines == 1:
            now -= held.stash_bytes
        elif done:
            running = held.stash_bytes
    return most
