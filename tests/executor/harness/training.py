"""One case, trained twice: by the executor on several ranks, and by a plain loop in one process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bapipe.plan import Plan
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel

STEPS = 3


@dataclass(frozen=True)
class Network:
    """A tiny network of the package in 64 bits; `tie` names two parameters that become one, as `layer/parameter`."""

    name: str
    tie: tuple[str, str] | None = None
    factory: str = "tiny"

    @property
    def module(self) -> Any:
        return importlib.import_module(f"bapipe_executor.models.{self.name}")

    def model(self) -> LayeredModel:
        """Always the same parameters."""
        model: LayeredModel = getattr(self.module, self.factory)(seed=1).double()
        if self.tie is not None:
            first, second = (name.split("/") for name in self.tie)
            owner, _, parameter = second[1].rpartition(".")
            tied = model.layer(first[0]).get_parameter(first[1])
            setattr(model.layer(second[0]).get_submodule(owner), parameter, tied)
            assert model.shared_parameters()
        return model

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Always the same samples, in 64 bits."""
        for batch in self.module.tiny_data(batch_size, seed=2):
            inputs = {n: t.double() if t.is_floating_point() else t for n, t in batch.inputs.items()}
            yield Batch(inputs, batch.target)

    def loss(self) -> Any:
        return self.module.loss()


@dataclass(frozen=True)
class Training:
    """How a case is trained."""

    optimizer: str = "sgd"
    max_gradient_norm: float | None = None
    scheduled: bool = False
    steps: int = STEPS

    def make_optimizer(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=1e-3)
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    @property
    def make_scheduler(self) -> Callable[[torch.optim.Optimizer], Any] | None:
        if not self.scheduled:
            return None
        return lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)


@dataclass(frozen=True)
class Outcome:
    """Losses of the steps, and the state of every rank, by the names of the whole model."""

    losses: list[float]
    states: list[dict[str, Tensor]]


def train_with_executor(network: Network, plan: Plan, training: Training) -> tuple[list[float], dict[str, Tensor]]:
    """On one rank: its losses and state."""
    from bapipe_executor.trainer import PipelineTrainer

    trainer = PipelineTrainer(
        plan,
        network.model(),
        network.loss(),
        training.make_optimizer,
        lr_scheduler=training.make_scheduler,
        max_gradient_norm=training.max_gradient_norm,
    )
    batches = network.batches(plan.request.batch_size)
    losses = [trainer.step(batch) for batch, _ in zip(batches, range(training.steps), strict=False)]
    return losses, {name: tensor.detach().clone() for name, tensor in trainer.module.state_dict().items()}


def train_in_one_process(network: Network, num_microbatches: int, size: int, training: Training) -> Outcome:
    """The same micro-batches one after the other, their gradients accumulated; a plain loop over the whole model."""
    model, loss_of = network.model(), network.loss()
    optimizer = training.make_optimizer(model.parameters())
    scheduler = training.make_scheduler(optimizer) if training.make_scheduler else None
    losses = []
    for batch, _ in zip(network.batches(num_microbatches * size), range(training.steps), strict=False):
        parts = [slice(k * size, (k + 1) * size) for k in range(num_microbatches)]
        counts = [_count(batch.target[part]) for part in parts]
        total = 0.0
        for part, count in zip(parts, counts, strict=True):
            output = model(**{name: tensor[part] for name, tensor in batch.inputs.items()})
            loss = loss_of(output, batch.target[part]) * (count / sum(counts))
            loss.backward()
            total += loss.item()
        if training.max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.max_gradient_norm)
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
        losses.append(total)
    return Outcome(losses, [dict(model.state_dict())])


def _count(target: Tensor) -> int:
    """The targets that are not ignored."""
    return int((target != -100).sum())
