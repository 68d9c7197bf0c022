"""What a layer's cost follows from: two layers with one signature take the same time and the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.fx import GraphModule

from bapipe_executor.profiling.layer_run import LayerRun
from bapipe_executor.profiling.tensors import tensors_in

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def signature(run: LayerRun) -> tuple[Any, ...]:
    """Shapes and types of arguments and parameters, and every setting of the module and those inside it.

    Settings are compared by how they print: what prints with its address is like nothing else.
    """
    arguments = tuple(_described(tensor) for tensor in tensors_in(run.arguments))
    if not isinstance(run.call, nn.Module):
        return arguments, repr(run.call)
    return arguments, tuple(_module(run.call))


def _module(module: nn.Module) -> Iterator[Any]:
    for name, part in module.named_modules():
        tensors = (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
        yield name, _kind(part), part.training, _settings(part), tuple((key, _described(each)) for key, each in tensors)


def _settings(module: nn.Module) -> tuple[tuple[str, str], ...]:
    if isinstance(module, GraphModule):
        return (("code", module.code),)
    return tuple((key, repr(value)) for key, value in vars(module).items() if key not in _OF_EVERY_MODULE)


def _kind(module: nn.Module) -> type:
    """Every graph has a class of its own."""
    return GraphModule if isinstance(module, GraphModule) else type(module)


def _described(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad
