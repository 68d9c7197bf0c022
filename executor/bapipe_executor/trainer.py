"""Trains a model as a plan says: each rank runs its stages, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe_executor.actions import actions_of
from bapipe_executor.batch import Batch, batch_faults
from bapipe_executor.connections import connect
from bapipe_executor.gradients import reduce_gradients, scale_gradients, squared_norm
from bapipe_executor.holdings import average_statistics, holdings_of, synchronise
from bapipe_executor.layered_model import LayeredModel, module_key
from bapipe_executor.loss import Loss, microbatch_weights
from bapipe_executor.observer import Observer
from bapipe_executor.placement import placement_of
from bapipe_executor.refusals import refuse
from bapipe_executor.stage_interface import spec_of, stage_interfaces
from bapipe_executor.stage_module import StageModule
from bapipe_executor.torch_schedule import ScheduleRuntime, Seat
from bapipe_executor.value_specs import outline, value_specs

OptimizerFactory = Callable[[Iterable[tuple[str, nn.Parameter]]], Optimizer]
"""Parameters with their names, of which a torch optimizer takes either form -> the optimizer of this rank."""


class LocalLayers(nn.Module):
    """The layers of this rank, under the names that they have in the whole model."""

    def __init__(self, model: LayeredModel, names: Iterable[str]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({module_key(name): model.layer(name) for name in names})


class PipelineTrainer:
    """One rank of a run. Every rank makes one, with the same plan and model, and steps through the same batches.

    Args:
        plan: what each rank does; as many ranks as devices in use, in the order of the cluster.
        model: the whole network. The layers of this rank are trained in place; the others are not used.
        loss: mean loss of a micro-batch from (output, target); with a `count`, micro-batches weigh by what counts.
        optimizer: makes the optimizer from (name, parameter) pairs, such as `lambda p: torch.optim.Adam(p, lr=1e-3)`.
        lr_scheduler: makes a scheduler for the optimizer; it is stepped after every step.
        max_gradient_norm: gradients are scaled down to this norm, over all stages.
        autocast: the type of mixed precision, such as `torch.bfloat16`; None: everything in the model's own types.
        device: where this rank computes.
        observer: is told of every operation.

    Raises:
        InvalidInputError: everything that keeps the plan from being run.
    """

    def __init__(
        self,
        plan: Plan,
        model: LayeredModel,
        loss: Loss,
        optimizer: OptimizerFactory,
        *,
        lr_scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        max_gradient_norm: float | None = None,
        autocast: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        observer: Observer | None = None,
    ) -> None:
        refuse(plan, model)
        assert plan.schedule is not None
        self._observer = observer
        self.plan, self.loss, self.max_gradient_norm = plan, loss, max_gradient_norm
        self.num_microbatches = plan.schedule.num_microbatches
        self.device, self._autocast_type = torch.device(device), autocast
        if isinstance(loss, nn.Module):
            loss.to(self.device)
        self.placement = placement_of(plan)
        self.rank = _own_rank(len(self.placement.devices))
        self._stage_layers = [stage.layers for stage in plan.stages]
        mine = self.placement.stages_of(self.rank)
        local = [name for name in model.names if any(name in self._stage_layers[stage] for stage in mine)]
        self.module = LocalLayers(model, local).to(self.device)
        self.canonical_names = model.canonical_names()
        self._holdings = holdings_of(model, self._stage_layers, self.placement, self.num_microbatches, self.rank)
        synchronise(self._holdings)
        self._outline = outline(model)  # so that the layers of other ranks can go
        self._actions = actions_of(plan)
        connect(self.placement, self.rank, self.num_microbatches, self.device)
        self._runtimes: dict[Any, ScheduleRuntime] = {}
        trainable = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        self.optimizer = optimizer(trainable) if trainable else None
        self.lr_scheduler = lr_scheduler(self.optimizer) if lr_scheduler and self.optimizer else None
        self.steps = 0

    def step(self, batch: Batch) -> float:
        """One optimizer step on a mini-batch, the same on every rank; its loss, on every rank.

        Raises:
            InvalidInputError: the batch is not of the plan's size, or lacks inputs of the model.
        """
        self._check(batch)
        microbatches = batch.to(self.device).microbatches(self.num_microbatches)
        weights = microbatch_weights(self.loss, [microbatch.target for microbatch in microbatches])

        def weighted(output: Any, k: int) -> Tensor:
            return self._loss_of(output, microbatches[k].target) * weights[k]

        if self._observer is not None:
            given = [tensor for each in microbatches for tensor in (*each.inputs.values(), each.target)]
            self._observer.started(given)
        runtime = self._runtime_for(microbatches[0])
        losses = runtime.run([microbatch.inputs for microbatch in microbatches], weighted)
        reduce_gradients(self._holdings, self.plan.request.gradient_bucket_bytes)
        average_statistics(self._holdings)
        loss = self._total_loss_and_clip(losses.values())
        self._update(loss)
        return loss

    def _loss_of(self, output: Any, target: Tensor) -> Tensor:
        try:
            loss = self.loss(output, target)
        except Exception as error:
            error.add_note("in the loss")
            raise
        if not isinstance(loss, Tensor) or loss.dim():
            what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            detail = f"the loss makes {what}; it is to make the mean over the micro-batch, a tensor that is one number"
            raise InvalidInputError([Fault("wrong_loss", detail, "/loss")])
        return loss

    def _total_loss_and_clip(self, losses: Iterable[Tensor]) -> float:
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for loss in losses:
            totals[0] += loss
        if self.max_gradient_norm is not None:
            totals[1] = squared_norm(self._holdings, self.rank)
        dist.all_reduce(totals)
        total, squares = totals.tolist()
        if self.max_gradient_norm is not None:
            scale_gradients(self._holdings, min(1.0, self.max_gradient_norm / (squares**0.5 + 1e-6)))
        return float(total)

    def _update(self, loss: float) -> None:
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if isinstance(self.lr_scheduler, ReduceLROnPlateau):
            self.lr_scheduler.step(loss)
        elif self.lr_scheduler is not None:
            self.lr_scheduler.step()
        self.steps += 1

    def _runtime_for(self, microbatch: Batch) -> ScheduleRuntime:
        """The runtime for micro-batches of this shape, made when the first of them comes."""
        key = tuple((name, tensor.shape, tensor.dtype) for name, tensor in sorted(microbatch.inputs.items()))
        if key not in self._runtimes:
            self._runtimes[key] = self._make_runtime(microbatch)
        return self._runtimes[key]

    def _make_runtime(self, microbatch: Batch) -> ScheduleRuntime:
        typed_by = self.device if self._autocast_type is not None else torch.device("cpu")
        specs = value_specs(self._outline, microbatch.inputs, typed_by, self._autocast())
        interfaces = stage_interfaces(self._outline, self._stage_layers, specs)
        seats = []
        for stage in self.placement.stages_of(self.rank):
            interface = interfaces[stage]
            module = StageModule(
                self._outline,
                self.module.layers,
                interface,
                specs,
                self.plan.stages[stage].recomputed_layers,
                self._autocast,
            )
            receives, sends = (tuple(spec_of(t, specs) for t in ts) for ts in (interface.receives, interface.sends))
            seats.append(Seat(stage, module, receives, sends))
        return ScheduleRuntime(
            seats, self.placement, self._actions, self.num_microbatches, self.device, self._autocast, self._observer
        )

    def _autocast(self) -> AbstractContextManager[None]:
        if self._autocast_type is None:
            return nullcontext()
        return torch.autocast(self.device.type, self._autocast_type)

    def _check(self, batch: Batch) -> None:
        faults = batch_faults(batch, self.plan.request.batch_size)
        faults += input_faults(self._outline, batch) if not faults else ()
        if faults:
            raise InvalidInputError(faults)


def input_faults(model: LayeredModel, batch: Batch) -> list[Fault]:
    """The inputs of the model that a batch does not have."""
    given = ", ".join(batch.inputs) or "none"
    return [
        Fault("dangling_reference", f"the batch has no input {name!r} of the model; it has {given}", f"/inputs/{name}")
        for name in model.inputs
        if name not in batch.inputs
    ]


def _own_rank(wanted: int) -> int:
    if not dist.is_initialized():
        detail = "no process group: start with torchrun and call init_process_group, or use `bapipe run`"
        raise InvalidInputError([Fault("no_process_group", detail)])
    if dist.get_world_size() != wanted:
        detail = f"{dist.get_world_size()} ranks, and the plan uses {wanted} devices; start one rank for each"
        raise InvalidInputError([Fault("wrong_length", detail)])
    return dist.get_rank()
