"""What is wrong with the optimizer and the learning-rate scheduler of a run, found before any process is started."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe_executor import run_parts
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.trainer import LocalLayers

T = TypeVar("T")


def made_or_noted(faults: list[Fault], factory: Callable[[], T]) -> T | None:
    """What a factory makes; None, and what is wrong with it added to the faults, if it cannot."""
    try:
        return factory()
    except InvalidInputError as error:
        faults += error.faults
        return None


def optimizer_faults(plan: Plan, spec: RunSpec, model: LayeredModel) -> list[Fault]:
    """What is wrong with the optimizer and the scheduler that a stage would have; nothing is stepped."""
    faults: list[Fault] = []
    for stage in plan.stages:
        layers = LocalLayers(model, [name for name in model.names if name in stage.layers])
        trainable = [(name, p) for name, p in layers.named_parameters() if p.requires_grad]
        found = _optimizer_of_a_stage(spec, trainable) if trainable else []
        faults += (fault for fault in found if fault not in faults)
    return faults


def _optimizer_of_a_stage(spec: RunSpec, trainable: Sequence[tuple[str, nn.Parameter]]) -> list[Fault]:
    faults: list[Fault] = []
    optimizer = made_or_noted(faults, lambda: run_parts.optimizer_factory(spec)(iter(trainable)))
    scheduled = made_or_noted(faults, lambda: run_parts.scheduler_factory(spec))
    if faults:
        return faults
    if not isinstance(optimizer, Optimizer):
        detail = f"{spec.optimizer} makes {type(optimizer).__name__}, which is no torch.optim.Optimizer"
        return [Fault("wrong_type", detail, "/optimizer")]
    if _needs_closure(optimizer):
        detail = (
            f"{type(optimizer).__name__} evaluates the loss several times a step, which a pipeline does once; take an "
            "optimizer whose step() needs no closure"
        )
        return [Fault("unsupported", detail, "/optimizer")]
    return _scheduler_faults(spec, scheduled, optimizer) if scheduled is not None else []


def _scheduler_faults(spec: RunSpec, factory: Callable[[Optimizer], Any], optimizer: Optimizer) -> list[Fault]:
    faults: list[Fault] = []
    scheduler = made_or_noted(faults, lambda: factory(optimizer))
    if not faults and not hasattr(scheduler, "state_dict"):
        detail = f"{spec.lr_scheduler} makes {type(scheduler).__name__}, which is no learning-rate scheduler"
        faults.append(Fault("wrong_type", detail, "/lr_scheduler"))
    return faults


def _needs_closure(optimizer: Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
