"""One layer on one micro-batch, cut off from the layers around it, as it runs at the start of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.profiling.tensors import detached, tensors_in


class LayerRun:
    """A callable with its arguments as leaves. `name` is for messages; `parameters` get gradients.

    `autocast`: the type of mixed precision, None for the types that everything has.
    """

    def __init__(
        self, name: str, call: Callable[..., Any], arguments: Sequence[Any], autocast: torch.dtype | None = None
    ) -> None:
        self.name = name
        self.arguments = detached(tuple(arguments))
        self.inputs = [tensor for tensor in tensors_in(self.arguments) if tensor.requires_grad]
        parameters = call.parameters() if isinstance(call, nn.Module) else ()
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.call = call
        self._autocast = autocast

    def forward(self) -> Any:
        """What the layer makes, with the graph of its backward.

        Raises:
            InvalidInputError: the layer changes what it reads, which no stage that starts with it could do.
        """
        try:
            with self._precision():
                return self.call(*self.arguments)
        except RuntimeError as error:
            if "in-place operation" not in str(error):
                raise
            detail = f"{self.name} changes what it reads in place; make it return a new tensor (inplace=False)"
            raise InvalidInputError([Fault("in_place", detail, f"/layers/{self.name}")]) from None

    def backward(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """The whole backward. Gradients of parameters add up, as over the micro-batches of a step."""
        for tensor in self.inputs:
            tensor.grad = None
        torch.autograd.backward(outputs, gradients)

    def input_gradients(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """The part of the backward on which the stage before waits."""
        torch.autograd.grad(outputs, self.inputs, gradients, allow_unused=True)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Parameters have gradients inside, and none afterwards; buffers such as running means are as before."""
        buffers = [(buffer, buffer.clone()) for buffer in self._buffers()]
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        try:
            yield
        finally:
            for tensor in (*self.parameters, *self.inputs):
                tensor.grad = None
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)

    def _precision(self) -> AbstractContextManager[Any]:
        if self._autocast is None:
            return nullcontext()
        device = next((tensor.device.type for tensor in tensors_in(self.arguments)), "cpu")
        return torch.autocast(device, self._autocast)

    def _buffers(self) -> Iterator[Tensor]:
        return self.call.buffers() if isinstance(self.call, nn.Module) else iter(())


def differentiable_outputs(made: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs that have a backward, and a gradient for each."""
    outputs = [tensor for tensor in tensors_in(made) if tensor.requires_grad]
    return outputs, [torch.ones_like(tensor) for tensor in outputs]
