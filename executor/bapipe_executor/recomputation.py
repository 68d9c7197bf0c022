"""Layers that keep what they read instead of what they make on the way, and run again before their backward.

The first forward leaves no graph. The second, which an operation R or else the backward starts, draws the same random
numbers and makes one; from then on the layers are as if they had been run once, their backward split or whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bapipe_executor.split_backward import Gradients, SplitBackward

Run = Callable[..., tuple[Tensor, ...]]
Context = Callable[[], AbstractContextManager[None]]


class Recomputation:
    """One run of layers on one micro-batch.

    `run` makes the outputs of the inputs; `context` is opened around it the second time, as it was the first.
    `defer`: the backward leaves the gradients of weights to `weight_gradients`.
    """

    def __init__(self, run: Run, parameters: Sequence[nn.Parameter], context: Context):
        self.anchor = torch.empty(0, requires_grad=True)
        self.defer = False
        self._run, self._context = run, context
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._inputs: tuple[Tensor, ...] = ()
        self._random: _RandomState | None = None
        self._made: tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None = None
        self._later: SplitBackward | None = None

    def __call__(self, inputs: tuple[Tensor, ...], differentiable: Sequence[bool]) -> tuple[Tensor, ...]:
        """The first run; `differentiable` says of each output whether a gradient flows back through it."""
        if not torch.is_grad_enabled() or not any(differentiable):
            return self._run(*inputs)
        outputs: tuple[Tensor, ...] = _Recomputed.apply(self, tuple(differentiable), self.anchor, *inputs)  # type: ignore[no-untyped-call]
        return outputs

    def first(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Runs without a graph, and keeps the inputs."""
        self._random = _RandomState(inputs)
        versions = [tensor._version for tensor in inputs]
        outputs = self._run(*inputs)
        if versions != [tensor._version for tensor in inputs]:
            raise RuntimeError("a layer works in place on what it reads and cannot be recomputed: keep its activations")
        self._inputs = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in inputs)
        return tuple(output.detach() for output in outputs)

    def again(self) -> None:
        """Runs a second time, with a graph; nothing happens where that was done."""
        if self._made is not None or self._random is None:
            return
        with self._random.restored(), torch.enable_grad(), self._context():
            self._made = self._inputs, self._run(*self._inputs)
        self._inputs = ()

    def backward(self, gradients: Gradients) -> Gradients:
        """The gradients of the inputs from those of the outputs."""
        self.again()
        assert self._made is not None
        leaves, outputs = self._made
        self._made, self._random = None, None
        split = SplitBackward(outputs, gradients, leaves, self._parameters)
        found = split.input_gradients()
        if self.defer:
            self._later = split
        else:
            split.weight_gradients()
        return found

    def weight_gradients(self) -> None:
        """The gradients of the weights, where the backward has left them."""
        if self._later is not None:
            self._later.weight_gradients()
            self._later = None


class _Recomputed(torch.autograd.Function):
    """Outputs whose backward is that of a second run. The anchor makes them part of the graph, whatever the inputs."""

    @staticmethod
    def forward(
        ctx: Any, recomputation: Recomputation, differentiable: tuple[bool, ...], anchor: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.recomputation = recomputation
        ctx.set_materialize_grads(False)
        outputs = recomputation.first(inputs)
        plain = (output for output, flag in zip(outputs, differentiable, strict=True) if not flag)
        ctx.mark_non_differentiable(*plain)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return (None, None, None, *ctx.recomputation.backward(gradients))


class _RandomState:
    """The random number generators as they are now: of the CPU, and of the devices of `tensors`."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
        self._cpu = torch.get_rng_state()
        self._cuda = [torch.cuda.get_rng_state(device) for device in self._devices]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """The generators as they were, inside; as they are, afterwards."""
        with torch.random.fork_rng(devices=self._devices):
            torch.set_rng_state(self._cpu)
            for device, state in zip(self._devices, self._cuda, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield
