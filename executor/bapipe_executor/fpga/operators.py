"""What the layers of a torch network compute, by shape: the operators that an FPGA's costs are worked out from.

The layers run on fake tensors, which hold nothing; every function of torch that they call is looked up by its name, and
what is not known by name is taken apart into the products that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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
        *("select", "slice", "unbind", "narrow", "view_as", "expand_as", "alias", "ones", "full", "movedim"),
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
        name = _name(func)
        with _Products() as inside:
            result = func(*args, **(kwargs or {}))
        outputs = [each for each in (result if isinstance(result, tuple) else (result,)) if isinstance(each, Tensor)]
        if outputs and outputs[0].is_floating_point() and name not in FREE and not name.startswith("__get"):
            known = _KNOWN.get(name)
            if known is not None:
                self.operators += known(args, kwargs or {}, outputs)
            else:
                self.operators += [*inside.operators, *_elementwise(args, kwargs or {}, outputs)]
        return result


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes an operator for each product that a function comes down to, whatever its name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[Operator] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = _name(func)
        if name in _FACTORS:
            left, right = args[_FACTORS[name]], args[_FACTORS[name] + 1]
            rows = left.numel() // left.shape[-1]
            self.operators.append(
                Linear(kind="linear", in_features=left.shape[-1], out_features=right.shape[-1], rows=rows)
            )
        elif name == "convolution":
            self.operators += _convolved(args[0], args[1], result, groups=args[8], transposed=args[6])
        elif name.startswith("_scaled_dot_product"):
            self.operators += _attention(args, kwargs or {}, [])
        return result


_FACTORS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Products of two matrices, or of as many as a batch has, and which argument is the first of them."""


def _name(func: Any) -> str:
    """`conv2d` of torch's function, of that of an exported graph, `conv2d.default`, and of one in place, `conv2d_`."""
    name = str(getattr(func, "__name__", "")).split(".")[0]
    return name if name.startswith("__") else name.rstrip("_")


Found = Iterator[Operator]
Arguments = tuple[Any, ...]


def _convolution(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    groups = _given(args, kwargs, 6, "groups", 1)
    image, weight = _given(args, kwargs, 0, "input"), _given(args, kwargs, 1, "weight")
    yield from _convolved(image, weight, outputs[0], groups=groups, transposed=False)


def _convolved(image: Tensor, weight: Tensor, made: Tensor, *, groups: int, transposed: bool) -> Found:
    """Transposed, each position of the input, not of the output, meets all weights."""
    yield Convolution(
        kind="convolution",
        in_channels=image.shape[1],
        out_channels=made.shape[1],
        kernel_positions=prod(weight.shape[2:]),
        out_pixels=prod((image if transposed else made).shape[2:]),
        groups=groups,
    )


def _given(args: Arguments, kwargs: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _linear(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    weight = _given(args, kwargs, 1, "weight")
    rows = outputs[0].numel() // weight.shape[0]
    yield Linear(kind="linear", in_features=weight.shape[1], out_features=weight.shape[0], rows=rows)


def _lstm(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    """`torch.lstm(input, states, weights, biases, layers, dropout, training, bidirectional, …)`: an operator a layer,
    whose weights of inputs and of the recurrence come for each direction.
    """
    weights, width, directions = args[2], args[0].shape[-1], 1 + bool(args[7])
    steps = args[0].numel() // width
    for layer in range(args[4]):
        own = weights[layer * len(weights) // args[4]]
        yield Lstm(
            kind="lstm",
            in_features=own.shape[1],
            hidden=own.shape[0] // 4,
            steps=steps,
            directions=directions,
        )


def _attention(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    queries, keys = _given(args, kwargs, 0, "query"), _given(args, kwargs, 1, "key")
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
    """Windows that overlap read an element several times; those of an adaptive pooling share the input out."""
    size = _given(args, kwargs, 1, "kernel_size")
    if size is None or isinstance(size, int):
        size = (size or 1,) * (outputs[0].dim() - 2)
    yield Pooling(kind="pooling", out_elements=outputs[0].numel(), window=prod(size))


def _adaptive_pooling(args: Arguments, kwargs: dict[str, Any], outputs: list[Tensor]) -> Found:
    window = max(1, _given(args, kwargs, 0, "input").numel() // outputs[0].numel())
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
    **dict.fromkeys(("layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm"), _normalisation),
    **{f"{way}_pool{size}d": _pooling for way in ("max", "avg") for size in (1, 2, 3)},
    **{f"adaptive_{way}_pool{size}d": _adaptive_pooling for way in ("max", "avg") for size in (1, 2, 3)},
    "boolean_dispatch": _pooling,
    "embedding": _embedding,
}
