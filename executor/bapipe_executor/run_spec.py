"""What is run: everything that a worker needs beside the plan, as a document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bapipe.faults import Count, Document

Reference = Annotated[str, Field(strict=True, min_length=1, max_length=1000)]
"""`package.module:name` of a function."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RunSpec(Document):
    """A training run.

    `model()` makes the network, the same on every rank; `data(batch_size)` the mini-batches, `loss()` the loss.
    `optimizer` is adam, adamw or sgd with `learning_rate`, or a function of (name, parameter) pairs; `lr_scheduler` a
    function of the optimizer. A run without a step for `timeout_s` is ended. `checkpoint` is a folder for checkpoints,
    one after every `checkpoint_every` steps and one at the end; `resume` goes on from the newest there, if any.
    `report` is a folder for what the ranks measure. `emulate_compute`: a stand-in runs in place of the network, and
    everything takes the time that the plan says.
    """

    model: Reference
    data: Reference
    loss: Reference
    steps: Count
    optimizer: Reference = "adam"
    learning_rate: Positive = 1e-3
    lr_scheduler: Reference | None = None
    max_gradient_norm: Positive | None = None
    autocast: Literal["bf16"] | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    timeout_s: Positive = 300.0
    checkpoint: Annotated[str, Field(min_length=1)] | None = None
    checkpoint_every: Count | None = None
    resume: bool = False
    report: Annotated[str, Field(min_length=1)] | None = None
    emulate_compute: bool = False
