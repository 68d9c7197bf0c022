"""A wide linear layer as several, each of which makes some of its outputs, so that a plan can cut between them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from bapipe.errors import Fault, InvalidInputError
from bapipe.nearest import nearest
from bapipe_executor.layered_model import LayeredModel, module_key
from bapipe_executor.models.building import Concatenate


def split_linear(model: LayeredModel, name: str, parts: int) -> LayeredModel:
    """`model` with its linear layer `name` as `parts` layers, `name.part0` and so on, all of which read what it read.

    Each has its rows of the weight, bit by bit, [outputs / parts, inputs]; the first have one more where they do not
    divide. The layer `name` itself puts the outputs one behind the other, so that all that reads it stays as it is. The
    other layers are those of `model`, not copies.

    Raises:
        InvalidInputError: there is no such layer, it is no `torch.nn.Linear`, it shares parameters with another, or
            it has fewer outputs than `parts`.
    """
    linear = _linear(model, name, parts)
    names = [f"{name}.part{number}" for number in range(parts)]
    layers: dict[str, nn.Module] = {}
    reads: dict[str, tuple[str, ...]] = {}
    for each in model.names:
        if each == name:
            layers |= dict(zip(names, _slices(linear, parts), strict=True))
            reads |= dict.fromkeys(names, model.reads[name])
        layers[each] = Concatenate(dim=-1) if each == name else model.layer(each)
        reads[each] = tuple(names) if each == name else model.reads[each]
    return LayeredModel(layers, reads, inputs=model.inputs, output=model.output)


def _linear(model: LayeredModel, name: str, parts: int) -> nn.Linear:
    """The layer, if it can be split."""
    if name not in model.reads:
        near = nearest(name, model.names)
        hint = f"; did you mean {near!r}?" if near else ""
        raise InvalidInputError([Fault("no_such_name", f"the network has no layer {name!r}{hint}", "/name")])
    layer = model.layer(name)
    if type(layer) is not nn.Linear:
        detail = f"layer {name!r} is {type(layer).__name__}; only a torch.nn.Linear is split by its outputs"
        raise InvalidInputError([Fault("wrong_type", detail, "/name")])
    faults = list(_faults(model, name, layer.out_features, parts))
    if faults:
        raise InvalidInputError(faults)
    return layer


def _faults(model: LayeredModel, name: str, outputs: int, parts: int) -> Iterator[Fault]:
    key = module_key(name)
    if any(shared.split(".", 2)[1] == key for group in model.shared_parameters() for shared in group):
        detail = f"layer {name!r} shares parameters with another layer, and split ones could not be shared; untie them"
        yield Fault("unsupported", detail, "/name")
    if not 1 <= parts <= outputs:
        detail = f"layer {name!r} has {outputs} outputs: split it into 1 to {outputs} parts, not {parts}"
        yield Fault("wrong_value", detail, "/parts")
    taken = sorted({f"{name}.part{number}" for number in range(max(0, min(parts, outputs)))} & set(model.names))
    if taken:
        yield Fault("duplicate_id", f"the network already has a layer {taken[0]!r}; rename it", "/name")


def _slices(linear: nn.Linear, parts: int) -> list[nn.Linear]:
    """Linear layers over consecutive outputs."""
    weights = linear.weight.tensor_split(parts)
    biases = [None] * parts if linear.bias is None else linear.bias.tensor_split(parts)
    made = []
    for weight, bias in zip(weights, biases, strict=True):
        part = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta", dtype=weight.dtype)
        part.weight = nn.Parameter(weight.detach().clone(), requires_grad=linear.weight.requires_grad)
        if bias is not None:
            part.bias = nn.Parameter(bias.detach().clone(), requires_grad=linear.bias.requires_grad)
        made.append(part.train(linear.training))
    return made
