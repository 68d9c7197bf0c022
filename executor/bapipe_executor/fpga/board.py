"""A virtual board: its stages' layers, the micro-batches whose backward is to come, and what it sends."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bapipe.errors import BaPipeError, Fault, InvalidInputError
from bapipe.lowering import Operation
from bapipe_executor.batch import Batch
from bapipe_executor.fpga.number_format import NumberFormat
from bapipe_executor.layered_model import LayeredModel, Value, module_key, source_of
from bapipe_executor.loss import Loss


class MissingDependencyError(BaPipeError):
    """An operation was to be executed before what it reads was made: the order is wrong."""


@dataclass
class Mail:
    """Tensors and gradients under way, by tensor name and micro-batch.

    `made_by`: the stage that makes each tensor that crosses a cut; `readers`: the other stages that read it.
    """

    made_by: Mapping[str, int]
    readers: Mapping[str, frozenset[int]]
    tensors: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    gradients: dict[tuple[str, int], dict[int, Tensor | None]] = field(default_factory=dict)

    def tensor(self, operation: Operation, name: str) -> Tensor:
        """A tensor that another stage made, as the start of a graph of its own."""
        found = self.tensors.get((name, operation.microbatch))
        if found is None:
            raise MissingDependencyError(f"{operation} is executed before {name!r} of another stage was made")
        return found.clone().requires_grad_(found.is_floating_point())

    def gradient(self, operation: Operation, name: str, like: Tensor) -> Tensor:
        """The sum of what all readers of a tensor sent back."""
        sent = self.gradients.pop((name, operation.microbatch), {})
        missing = self.readers[name] - sent.keys()
        if missing:
            detail = f"{operation} is executed before the gradient of {name!r} from stage {min(missing)} was made"
            raise MissingDependencyError(detail)
        total = torch.zeros_like(like)
        for stage in sorted(sent):
            part = sent[stage]
            total = total if part is None else total + part
        return total


@dataclass
class _Held:
    """What a forward leaves for its backward."""

    received: dict[str, Tensor]
    sent: dict[str, Tensor]
    loss: Tensor | None
    ends: tuple[list[Tensor], list[Tensor]] | None = None


class Board:
    """One device: copies of its layers, executed operation by operation."""

    def __init__(
        self,
        model: LayeredModel,
        stages: Mapping[int, Sequence[str]],
        loss: Loss,
        rounding: NumberFormat | None,
    ) -> None:
        self._model, self._loss, self._rounding = model, loss, rounding
        self._stages = {
            stage: tuple(name for name in model.names if name in layers) for stage, layers in stages.items()
        }
        names = [name for layers in self._stages.values() for name in layers]
        self.layers = copy.deepcopy(nn.ModuleDict({module_key(name): model.layer(name) for name in names}))
        self._held: dict[tuple[int, int], _Held] = {}

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter once, by the first of its names, as the whole model spells them."""
        for name, parameter in self.layers.named_parameters():
            yield f"layers.{name}", parameter

    def execute(self, operation: Operation, batch: Batch, weight: float, mail: Mail) -> float:
        """Executes one operation on micro-batch `batch`, whose loss weighs `weight`; returns the loss of a forward on
        the last stage, else 0.

        Raises:
            MissingDependencyError: something that it reads is not there.
        """
        if operation.kind == "F":
            return self._forward(operation, batch, weight, mail)
        if operation.kind != "R":
            self._backward(operation, mail)
        return 0.0

    def _forward(self, operation: Operation, batch: Batch, weight: float, mail: Mail) -> float:
        layers = self._stages[operation.stage]
        values: dict[str, Value] = dict(batch.inputs)
        received: dict[str, Tensor] = {}
        for name in layers:
            arguments = []
            for read in self._model.reads[name]:
                if mail.made_by.get(read, operation.stage) != operation.stage and read not in received:
                    received[read] = mail.tensor(operation, read)
                arguments.append(received[read] if read in received else self._model.select(read, values))
            values[name] = self._call(name, arguments)
        loss = None
        if source_of(self._model.output)[0] in layers:
            loss = self._loss(_tensor(self._model.select(self._model.output, values)), batch.target) * weight
        own = [name for name, stage in mail.made_by.items() if stage == operation.stage]
        sent = {name: _tensor(self._model.select(name, values)) for name in own}
        for name, tensor in sent.items():
            mail.tensors[name, operation.microbatch] = tensor.detach()
        self._held[operation.stage, operation.microbatch] = _Held(received, sent, loss)
        return 0.0 if loss is None else float(loss.detach())

    def _call(self, name: str, arguments: Sequence[Value]) -> Value:
        layer = self.layers[module_key(name)]
        if self._rounding is None:
            made: Value = layer(*arguments)
            return made
        rounded = {key: self._rounding(parameter) for key, parameter in layer.named_parameters()}
        made = functional_call(layer, rounded, tuple(arguments))
        return self._rounding(made) if isinstance(made, Tensor) else tuple(map(self._rounding, made))

    def _backward(self, operation: Operation, mail: Mail) -> None:
        """B; I, which leaves the graph for W; or W."""
        key = operation.stage, operation.microbatch
        held = self._held.get(key)
        if held is None or (operation.kind == "W") != (held.ends is not None):
            raise MissingDependencyError(f"{operation} is executed before what comes before it")
        ends, gradients = held.ends or self._ends(operation, held, mail)
        leaves = [leaf for leaf in held.received.values() if leaf.requires_grad]
        parameters = [parameter for parameter in self.layers.parameters() if parameter.requires_grad]
        wanted = [*(leaves if operation.kind != "W" else ()), *(parameters if operation.kind != "I" else ())]
        keeps = operation.kind == "I"
        found = torch.autograd.grad(ends, wanted, gradients, retain_graph=keeps, allow_unused=True) if wanted else ()
        for tensor, gradient in zip(wanted, found, strict=True):
            if gradient is not None:
                tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
        if operation.kind == "W":
            del self._held[key]
            return
        for name, leaf in held.received.items():
            mail.gradients.setdefault((name, operation.microbatch), {})[operation.stage] = leaf.grad
        held.ends = (ends, gradients)
        if operation.kind == "B":
            del self._held[key]

    @staticmethod
    def _ends(operation: Operation, held: _Held, mail: Mail) -> tuple[list[Tensor], list[Tensor]]:
        """What the backward starts from: tensors that were sent, and the loss; and their gradients."""
        sent = {name: tensor for name, tensor in held.sent.items() if tensor.requires_grad}
        ends = list(sent.values())
        gradients = [mail.gradient(operation, name, tensor) for name, tensor in sent.items()]
        if held.loss is not None:
            ends.append(held.loss)
            gradients.append(torch.ones_like(held.loss))
        return ends, gradients


def _tensor(value: Value) -> Tensor:
    if isinstance(value, Tensor):
        return value
    detail = "a tuple of tensors crosses a cut, or is the output; read its tensors one by one, as layer:k"
    raise InvalidInputError([Fault("unsupported", detail, "/model")])
