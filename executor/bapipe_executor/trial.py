"""What a run would stumble over in its first step, found on tensors without data before any process is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe_executor import run_parts
from bapipe_executor.batch import Batch
from bapipe_executor.factories import make
from bapipe_executor.failures import reason_of
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.optimizer_trial import made_or_noted, optimizer_faults
from bapipe_executor.quiet import quiet
from bapipe_executor.refusals import model_faults
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.stage_interface import spec_of, tensors_of
from bapipe_executor.trainer import input_faults
from bapipe_executor.value_specs import Specs, TensorSpec, value_specs


def trial_faults(plan: Plan, spec: RunSpec) -> list[Fault]:
    """Everything that is wrong with what the factories of a run make, for a plan that is sound by itself."""
    faults: list[Fault] = []
    batch = made_or_noted(faults, lambda: _first_batch(spec, plan.request.batch_size))
    loss = made_or_noted(faults, lambda: run_parts.make_loss(spec))
    if batch is None:
        made_or_noted(faults, lambda: make(spec.model, "/model"))
        return faults
    model = made_or_noted(faults, lambda: run_parts.make_model(spec))
    if model is None:
        return faults
    faults += [*model_faults(plan, model), *input_faults(model, batch), *optimizer_faults(plan, spec, model)]
    if not faults and loss is not None:
        faults += _step_faults(plan, spec, model, loss, batch)
    return faults


def _first_batch(spec: RunSpec, size: int) -> Batch:
    batch = next(run_parts.make_batches(spec, size), None)
    if batch is None:
        detail = f"{spec.data}({size}) gives no mini-batch; it must give one a step, and {spec.steps} are asked for"
        raise InvalidInputError([Fault("too_short", detail, "/data")])
    return batch


def _step_faults(plan: Plan, spec: RunSpec, model: LayeredModel, loss: Loss, batch: Batch) -> list[Fault]:
    """One micro-batch through the layers and the loss."""
    assert plan.schedule is not None
    microbatch = batch.microbatches(plan.schedule.num_microbatches)[0]
    autocast_type = run_parts.autocast_type(spec)
    device = torch.device(spec.device if autocast_type is not None else "cpu")
    autocast = torch.autocast(spec.device, autocast_type) if autocast_type is not None else nullcontext()
    faults: list[Fault] = []
    specs = made_or_noted(faults, lambda: value_specs(model, microbatch.inputs, device, autocast))
    if specs is not None:
        faults += loss_faults(loss, output_specs(model, specs), microbatch.target, device)
    return faults


def output_specs(model: LayeredModel, specs: Specs) -> TensorSpec | tuple[TensorSpec, ...]:
    """What the model makes for the loss."""
    found = tuple(spec_of(name, specs) for name in tensors_of(model.output, specs))
    whole = ":" not in model.output and isinstance(specs[model.output], tuple)
    return found if whole else found[0]


def loss_faults(
    loss: Loss, output: TensorSpec | tuple[TensorSpec, ...], target: Tensor, device: torch.device
) -> Iterator[Fault]:
    """Whether the loss makes a number of the output, through which gradients flow back."""
    try:
        made = _loss_of(loss, output, target, device)
    except Exception as error:
        yield Fault("loss_failed", f"the loss fails on a micro-batch: {reason_of(error)}", "/loss")
        return
    if not isinstance(made, Tensor) or made.dim():
        what = f"a tensor of shape {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        detail = f"the loss makes {what}; it is to make the mean over the micro-batch, a tensor that is one number"
        yield Fault("wrong_loss", detail, "/loss")
    elif not made.requires_grad:
        detail = "no gradient flows back through the loss: nothing would be trained"
        yield Fault("wrong_loss", detail, "/loss")


def _loss_of(loss: Loss, output: TensorSpec | tuple[TensorSpec, ...], target: Tensor, device: torch.device) -> Any:
    """The loss without data; with data where it looks at them."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), quiet(), torch.enable_grad():
            given = torch.empty(target.shape, dtype=target.dtype, device=device)
            return loss(_like(output, device), given)
    except Exception:
        with torch.enable_grad():
            return loss(_like(output, target.device), target)


def _like(output: TensorSpec | tuple[TensorSpec, ...], device: torch.device) -> Any:
    if isinstance(output, tuple):
        return tuple(_like(each, device) for each in output)
    return torch.zeros(output.shape, dtype=output.dtype, device=device).requires_grad_(output.requires_grad)
