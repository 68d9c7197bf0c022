"""From the references of a run to what they make: network, batches, loss, optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.batch import Batch, batch_faults
from bapipe_executor.data_stream import seeded
from bapipe_executor.factories import load_factory, make, sibling
from bapipe_executor.failures import reason_of
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
    if not callable(loss):
        detail = f"{spec.loss} makes {type(loss).__name__}; it is to make a function of (output, target)"
        raise InvalidInputError([Fault("wrong_type", detail, "/loss")])
    return loss


def make_batches(spec: RunSpec, batch_size: int) -> Iterator[Batch]:
    """The mini-batches, from the first: the same each time, on every rank."""
    return seeded(_checked(spec.data, batch_size), spec.seed)


def _checked(reference: str, batch_size: int) -> Iterator[Batch]:
    """What the factory of the data gives, each of them a batch of so many samples."""
    source = make(reference, "/data", batch_size)
    if not isinstance(source, Iterable):
        detail = f"{reference}({batch_size}) makes {type(source).__name__}; it is to make something that gives batches"
        raise InvalidInputError([Fault("wrong_type", detail, "/data")])
    iterator = iter(source)
    for number in count(1):
        try:
            batch = next(iterator, None)
        except Exception as error:
            detail = f"mini-batch {number} of {reference}({batch_size}) failed: {reason_of(error)}"
            raise InvalidInputError([Fault("factory_failed", detail, "/data")]) from error
        if batch is None:
            return
        faults = batch_faults(batch, batch_size)
        if faults:
            where = f"mini-batch {number} of {reference}({batch_size})"
            raise InvalidInputError([Fault(f.code, f"{where}: {f.detail}", f"/data{f.pointer}") for f in faults])
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
