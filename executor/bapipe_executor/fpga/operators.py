"""What the layers of a torch network compute, by shape: the operators that an FPGA's costs are worked out from.

The layers run on fake tensors, which hold nothing; every function of torch that they call is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from bapipe.operators import (
    IN_STREAM,
    Attention,
    Convolution,
    Elementwise,
    Embedding,
    Linear,
    Lstm,
    Normalisation,
    Operator,
    Pooling,
)
from bapipe.problem import ModelProfile
from bapipe_executor.layered_model import LayeredModel, Value
from bapipe_executor.value_specs import outline

FREE = frozenset(
    {
        *("flatten", "reshape", "view", "permute", "transpose", "unflatten", "unsqueeze", "squeeze", "contiguous"),
        *("chunk", "split", "expand", "size", "dim", "arange", "zeros", "new_zeros", "empty", "detach", "to"),
    }
)
"""Functions that move no element, or whose result does not depend on the sample."""


def with_operators(profile: ModelProfile, model: LayeredModel, inputs: Mapping[str, Tensor]) -> ModelProfile:
    """`profile` of `model` with the operators of its layers, and whether they emit output while they read input: where
    all of them do, as convolutions and what works in stream. `inputs` of a micro-batch of any size.
    """
    found = operators_of(model, inputs)
    layers = []
    for layer in profile.layers:
        streamable = all(operator.kind in ("convolution", *IN_STREAM) for operator in found[layer.id])
        layers.append(layer.model_copy(update={"operators": found[layer.id], "streamable": streamable}))
    return profile.model_copy(update={"layers": tuple(layers)})


def operators_of(model: LayeredModel, inputs: Mapping[str, Tensor]) -> dict[str, tuple[Operator, ...]]:
    """The operators of every layer, of one sample, by its name."""
    found = {}
    with torch.random.fork_rng(devices=[]), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        described = outline(model, "cpu")
        values: dict[str, Value] = {
            name: torch.empty((1, *tensor.shape[1:]), dtype=tensor.dtype) for name, tensor in inputs.items()
        }
        for name in model.names:
            with _Listening() as listening:
                values[name] = described.call(name, values)
            first = all(read in model.inputs for read in model.reads[name])
            found[name] = tuple(_without_input_gradient(listening.operators) if first else listening.operators)
    return found


def _without_input_gradient(operators: list[Operator]) -> Iterator[Operator]:
    """The operators of a layer that reads inputs of the model only, whose gradient nobody asks for: of the first one
    that has weights.
    """
    reached = False
    for operator in operators:
        if not reached and isinstance(operator, Convolution | Linear | Lstm):
            yield operator.model_copy(update={"input_gradient": False})
        else:
            yield operator
        reached = True


class _Listening(TorchFunctionMode):
    """Notes an operator for each function of torch that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        outputs = [each for each in (result if isinstance(result, tuple) else (result,)) if isinstance(each, Tensor)]
        if outputs and outputs[0].is_floating_point() and name not in FREE and not name.startswith("__get"):
            self.operators += _KNOWN.get(name, _elementwise)(args, kwargs or {}, outputs)
        return result


Found = Iterator[Operator]
Arguments = tuple[Any, ...]


def _convolution(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    weight = args[1]
    groups = kwargs.get("groups", args[6] if len(args) > 6 else 1)
    yield Convolution(
        kind="convolution",
        in_channels=weight.shape[1] * groups,
        out_channels=weight.shape[0],
        kernel_positions=prod(weight.shape[2:]),
        out_pixels=prod(outputs[0].shape[2:]),
        groups=groups,
    )


def _linear(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    weight = args[1]
    rows = outputs[0].numel() // weight.shape[0]
    yield Linear(kind="linear", in_features=weight.shape[1], out_features=weight.shape[0], rows=rows)


def _lstm(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    """`torch.lstm(input, states, weights, …)`: weights of inputs and of the recurrence, for each direction."""
    weights, width = args[2], args[0].shape[-1]
    hidden = weights[1].shape[1]
    directions = outputs[0].shape[-1] // hidden
    yield Lstm(kind="lstm", in_features=width, hidden=hidden, steps=args[0].numel() // width, directions=directions)


def _attention(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    queries, keys = args[0], args[1]
    heads = prod(queries.shape[:-2])
    yield Attention(
        kind="attention",
        queries=queries.shape[-2],
        keys=keys.shape[-2],
        heads=heads,
        head_features=queries.shape[-1],
    )


def _product(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    """A product of two activations: half of an attention, counted as a linear layer without weights of its own."""
    left = args[0]
    yield Linear(
        kind="linear",
        in_features=left.shape[-1],
        out_features=outputs[0].shape[-1],
        rows=outputs[0].numel() // outputs[0].shape[-1],
    )


def _normalisation(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    yield Normalisation(kind="normalisation", elements=outputs[0].numel())


def _pooling(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    window = max(1, args[0].numel() // outputs[0].numel())
    yield Pooling(kind="pooling", out_elements=outputs[0].numel(), window=window)


def _embedding(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    width = outputs[0].shape[-1]
    yield Embedding(kind="embedding", lookups=outputs[0].numel() // width, width=width)


def _elementwise(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    elements = sum(each.numel() for each in outputs)
    if elements:
        yield Elementwise(kind="elementwise", elements=elements)


_KNOWN: dict[str, Callable[[Arguments, dict[str, Any], list[Tensor]], Found]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    "linear": _linear,
    "lstm": _lstm,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("matmul", "__matmul__", "bmm"), _product),
    **dict.fromkeys(("layer_norm", "batch_norm", "group_norm", "rms_norm"), _normalisation),
    **dict.fromkeys(("max_pool2d", "boolean_dispatch", "avg_pool2d", "adaptive_avg_pool2d", "_max_pool2d"), _pooling),
    "embedding": _embedding,
}
