"""The network as torch.export sees it, in a form whose nodes can be told apart into layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.quiet import quiet
from bapipe_executor.random_numbers import drawn_outside_torch, generator_states

SAMPLES = 2
"""An export with one sample would hold for one sample only."""

_CHECKS = {
    torch.ops.aten._assert_tensor_metadata.default,
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
    torch.ops.aten.sym_constrain_range.default,
}


class Exported(NamedTuple):
    """The graph of a network, and whether the network returns a tuple of tensors or one tensor."""

    module: GraphModule
    returns_tuple: bool


class ExportError(Exception):
    """torch.export does not take the network; the message is its reason, in a line."""


def exported_graph(model: nn.Module, inputs: Mapping[str, Tensor]) -> Exported:
    """The operations of the model for any number of samples, with its own parameters and buffers.

    Raises:
        ExportError: the model cannot be exported.
        InvalidInputError: it returns something else than a tensor or a tuple of tensors, or draws random numbers that
            are not torch's.
    """
    samples = {name: _two_samples(tensor) for name, tensor in inputs.items()}
    batch, random_before = torch.export.Dim("batch"), generator_states()
    try:
        with quiet():
            program = torch.export.export(
                model, (), samples, dynamic_shapes={name: {0: batch} for name in samples}, strict=False
            )
            module = program.module(check_guards=False)
    except Exception as error:
        raise ExportError(_first_line(error)) from error
    if drawn_outside_torch(random_before, generator_states()):
        detail = (
            f"{type(model).__name__} draws random numbers of Python or numpy as it runs, and torch.export would keep "
            "what they were once; draw from torch, or write it as a bapipe_executor.LayeredModel"
        )
        raise InvalidInputError([Fault("foreign_random_numbers", detail, "/model")])
    assert isinstance(module, GraphModule)
    _drop_checks(module)
    _share_batch_size(module)
    return Exported(module, _returns_tuple(program.call_spec.out_spec, module, model))


def _returns_tuple(made: Any, module: GraphModule, model: nn.Module) -> bool:
    (outputs,) = next(node for node in module.graph.nodes if node.op == "output").args
    is_tuple = made.type in (tuple, list) and all(part.is_leaf() for part in made.children())
    if not (made.is_leaf() or is_tuple) or not outputs or not all(isinstance(each, Node) for each in outputs):
        detail = f"{type(model).__name__} returns something else than tensors; return a tensor or a tuple of tensors"
        raise InvalidInputError([Fault("wrong_output", detail, "/model")])
    return bool(is_tuple)


def _two_samples(tensor: Tensor) -> Tensor:
    return tensor[:1].repeat(SAMPLES, *[1] * (tensor.dim() - 1))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _drop_checks(module: GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.target in _CHECKS and not node.users:
            module.graph.erase_node(node)


def _share_batch_size(module: GraphModule) -> None:
    """The number of samples comes from the first model input everywhere, since that is there at every stage."""
    graph = module.graph
    first = next((node for node in graph.nodes if node.op == "placeholder"), None)
    sizes = [node for node in graph.nodes if _is_batch_size(node, first)]
    if first is None or not sizes:
        return
    with graph.inserting_after(first):
        batch = graph.call_function(torch.ops.aten.sym_size.int, (first, 0))
    batch.meta = {**sizes[0].meta, "nn_module_stack": None}
    for node in sizes:
        node.replace_all_uses_with(batch)
        graph.erase_node(node)


def _is_batch_size(node: Node, first: Node | None) -> bool:
    if first is None or node.target is not torch.ops.aten.sym_size.int:
        return False
    size, batch = node.meta["val"], first.meta["val"].shape[0]
    return isinstance(size, torch.SymInt) and bool(size.node.expr == batch.node.expr)
