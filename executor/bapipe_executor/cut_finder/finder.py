"""From any module to a `LayeredModel`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from torch import Tensor, nn

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.cut_finder.children import layered_children
from bapipe_executor.cut_finder.exported import ExportError, exported_graph
from bapipe_executor.cut_finder.layer_graphs import layered_graph
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.wrappers import wrapper_details


def layered(model: nn.Module, inputs: Mapping[str, Tensor]) -> LayeredModel:
    """The same network as layers, with the same parameter objects: training either trains both.

    `inputs` are the arguments of `model.forward` by name, samples in the first dimension; their values do not matter
    but to a network that cannot be exported. The layers compute as the model does in the mode that it is in, training
    or evaluation. Operations in place become operations that make new tensors, where a cut could fall between.

    Raises:
        InvalidInputError: the network cannot be cut, or is wrapped for another way to train, and why.
    """
    if isinstance(model, LayeredModel):
        return model
    _check_inputs(model, inputs)
    wrapped = [Fault("unsupported", detail, "/model") for detail in wrapper_details(type(model).__name__, model)]
    if wrapped:
        raise InvalidInputError(wrapped)
    try:
        return layered_graph(exported_graph(model, inputs), model)
    except ExportError as error:
        reason = str(error)
    found = layered_children(model, inputs)
    if isinstance(found, LayeredModel):
        return found
    detail = (
        f"{type(model).__name__} cannot be cut. torch.export says: {reason} Its children cannot be the layers either: "
        f"{found}. Write it as an nn.Sequential, or as a bapipe_executor.LayeredModel"
    )
    raise InvalidInputError([Fault("cannot_cut", detail, "/model")])


def _check_inputs(model: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    """The inputs are arguments of the model, and all have as many samples."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except TypeError as error:
        detail = f"{type(model).__name__}.forward cannot be called with the inputs {', '.join(inputs)}: {error}"
        raise InvalidInputError([Fault("wrong_inputs", detail, "/inputs")]) from None
    samples = {name: tensor.shape[0] if tensor.dim() else None for name, tensor in inputs.items()}
    if len(set(samples.values())) > 1 or None in samples.values():
        detail = f"the first dimension of every input counts samples, but these have {samples}"
        raise InvalidInputError([Fault("wrong_inputs", detail, "/inputs")])
