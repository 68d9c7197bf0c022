"""Shapes and types of everything that a model's layers make, without executing them.

The layers run on fake tensors: nothing is computed, no statistic of a normalisation is updated, no random number drawn.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.failures import reason_of
from bapipe_executor.layered_model import LayeredModel, Value
from bapipe_executor.quiet import quiet


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a layer makes; `requires_grad`: a gradient flows back through it."""

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool

    def on_meta(self) -> Tensor:
        """A tensor like it, without data."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta", requires_grad=self.requires_grad)


M = TypeVar("M", bound=nn.Module)

Specs = Mapping[str, TensorSpec | tuple[TensorSpec, ...]]
"""What each layer makes, by its name: a tensor or a tuple of tensors."""


def value_specs(
    model: LayeredModel,
    inputs: Mapping[str, Tensor],
    device: torch.device,
    autocast: AbstractContextManager[None],
) -> Specs:
    """What the layers of `model`, of which an outline will do, make of a micro-batch like `inputs` on `device`.

    Raises:
        InvalidInputError: a layer cannot run on it.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.random.fork_rng(devices=[]), mode, torch.enable_grad():
        fake = outline(model, device)
        values: dict[str, Value] = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype, device=device) for name, tensor in inputs.items()
        }
        with autocast:
            for name in fake.names:
                values[name] = _called(fake, name, values)
    return {name: _spec(values[name]) for name in model.names}


def _called(model: LayeredModel, name: str, values: Mapping[str, Value]) -> Value:
    try:
        with quiet():
            made = model.call(name, values)
    except Exception as error:
        kind = type(model.layer(name)).__name__
        detail = f"layer {name!r} ({kind}) cannot run on a micro-batch: {reason_of(error)}"
        raise InvalidInputError([Fault("layer_failed", detail, f"/model/{name}")]) from error
    parts = made if isinstance(made, tuple) else (made,)
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        detail = f"layer {name!r} makes {type(made).__name__}; a layer makes a tensor or a tuple of tensors"
        raise InvalidInputError([Fault("wrong_output", detail, f"/model/{name}")])
    return made


def outline(model: M, device: torch.device | str = "meta") -> M:
    """A copy of a module whose parameters and buffers are empty and on `device`, meta for none at all."""
    memo: dict[int, object] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
        memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
    return copy.deepcopy(model, memo)


def _spec(value: Value) -> TensorSpec | tuple[TensorSpec, ...]:
    if isinstance(value, Tensor):
        return TensorSpec(value.shape, value.dtype, value.requires_grad)
    return tuple(TensorSpec(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in value)
