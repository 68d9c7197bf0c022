"""From the references of a run to what they make: network, batches, loss, optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.batch import Batch
from bapipe_executor.data_stream import seeded
from bapipe_executor.factories import load_factory, make, sibling
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.networks import layered_network
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.trainer import OptimizerFactory

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def default_loss(model: str) -> str:
    """The factory `loss` beside the model's, else the cross entropy of what is not masked."""
    return sibling(model, "loss") or "bapipe_executor.loss:MaskedCrossEntropy"


def make_model(spec: RunSpec) -> LayeredModel:
    """The network; the same random numbers on every rank."""
    torch.manual_seed(spec.seed)
    model = make(spec.model, "/model")

    def batch_of(size: int) -> Batch:
        return next(make_batches(spec, size))

    return layered_network(model, batch_of, spec.model)


def make_loss(spec: RunSpec) -> Loss:
    """The loss."""
    loss: Loss = make(spec.loss, "/loss")
    return loss


def make_batches(spec: RunSpec, batch_size: int) -> Iterator[Batch]:
    """The mini-batches, from the first: the same each time, on every rank."""
    for batch in seeded(make(spec.data, "/data", batch_size), spec.seed):
        if not isinstance(batch, Batch):
            detail = f"{spec.data}({batch_size}) gives {type(batch).__name__}; it is to give a Batch"
            raise InvalidInputError([Fault("wrong_batch", detail, "/data")])
        yield batch


def optimizer_factory(spec: RunSpec) -> OptimizerFactory:
    """What makes the optimizer of a rank."""
    if spec.optimizer in OPTIMIZERS:
        return lambda parameters: OPTIMIZERS[spec.optimizer](parameters, lr=spec.learning_rate)
    if ":" not in spec.optimizer:
        known = ", ".join(OPTIMIZERS)
        detail = (
            f"there is no optimizer {spec.optimizer!r}; take {known}, or module:function of (name, parameter) pairs"
        )
        raise InvalidInputError([Fault("unknown_value", detail, "/optimizer")])
    load_factory(spec.optimizer, "/optimizer")

    def made(parameters: Iterable[tuple[str, nn.Parameter]]) -> Optimizer:
        optimizer: Optimizer = make(spec.optimizer, "/optimizer", parameters)
        return optimizer

    return made


def scheduler_factory(spec: RunSpec) -> Callable[[Optimizer], Any] | None:
    """What makes the learning-rate scheduler of a rank."""
    reference = spec.lr_scheduler
    if reference is None:
        return None
    load_factory(reference, "/lr_scheduler")
    return lambda optimizer: make(reference, "/lr_scheduler", optimizer)


def autocast_type(spec: RunSpec) -> torch.dtype | None:
    """The type of mixed precision."""
    return torch.bfloat16 if spec.autocast == "bf16" else None
