"""A network as a factory made it, as the layers that a plan can cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bapipe.errors import Fault, InvalidInputError
from bapipe_executor.batch import Batch
from bapipe_executor.cut_finder import layered
from bapipe_executor.factories import load_factory, sibling
from bapipe_executor.layered_model import LayeredModel


def layered_network(model: Any, batch_of: Callable[[int], Batch], reference: str) -> LayeredModel:
    """`model` if it has layers already; else its layers as they are found on a batch of two samples, always the same.

    Raises:
        InvalidInputError: it is no module, or cannot be cut.
    """
    if isinstance(model, LayeredModel):
        return model
    if not isinstance(model, nn.Module):
        detail = f"{reference} makes {type(model).__name__}, which is no torch.nn.Module"
        raise InvalidInputError([Fault("wrong_type", detail, "/model")])
    place = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    return layered(model, batch_of(2).to(place).inputs)


def default_data(model: str) -> str:
    """The factory beside the model's that has its name with `_data`.

    Raises:
        InvalidInputError: there is none, or the model's is not there.
    """
    load_factory(model, "/model")
    found = sibling(model, f"{model.rpartition(':')[2]}_data")
    if found is None:
        detail = f"say with --data which batches {model} reads: module:factory, called with the number of samples"
        raise InvalidInputError([Fault("missing", detail, "/data")])
    return found
