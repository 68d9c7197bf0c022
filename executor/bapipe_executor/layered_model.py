"""A network as named layers and what each of them reads: the form in which a plan can cut it.

The names are the layer ids of the `ModelProfile`. They are global: a stage holds its layers under them, so the names
of parameters in a checkpoint do not depend on the partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from bapipe.errors import Fault, InvalidInputError

Value = Tensor | tuple[Tensor, ...]
"""What a layer makes: a tensor or a tuple of tensors. Those of floating point carry gradients."""


class LayeredModel(nn.Module):
    """Layers in topological order, each of which reads values: model inputs, or what earlier layers made.

    `reads[name]` are the arguments of layer `name`, in order: the name of a model input, `other` for all that layer
    `other` made, or `other:k` for the k-th tensor of the tuple that it made. `inputs` are the names of the model's
    inputs, which every stage can read: they are never sent. `output` is the value that the loss sees. All inputs have
    the samples of the batch in their first dimension.

    A layer may be a module of several others; a parameter that several layers have is tied (`shared_parameters`).
    """

    def __init__(
        self,
        layers: Mapping[str, nn.Module],
        reads: Mapping[str, Sequence[str]],
        inputs: Sequence[str],
        output: str,
    ) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        self.output = output
        self.reads: dict[str, tuple[str, ...]] = {name: tuple(reads.get(name, ())) for name in layers}
        faults = [*_name_faults(layers, self.inputs), *_read_faults(self.reads, set(reads), self.inputs, output)]
        if faults:
            raise InvalidInputError(faults)
        self.layers = nn.ModuleDict({module_key(name): layer for name, layer in layers.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers, in topological order."""
        return tuple(self.reads)

    def layer(self, name: str) -> nn.Module:
        """The layer of that name."""
        return self.layers[module_key(name)]

    def forward(self, **inputs: Tensor) -> Value:
        """The whole network on one batch; the inputs by their names."""
        values: dict[str, Value] = dict(inputs)
        for name in self.names:
            values[name] = self.call(name, values)
        return self.select(self.output, values)

    def call(self, name: str, values: Mapping[str, Value]) -> Value:
        """What layer `name` makes of `values`, which are model inputs and what layers made, by name."""
        made: Any = self.layer(name)(*(self.select(read, values) for read in self.reads[name]))
        return tuple(made) if isinstance(made, list) else made

    @staticmethod
    def select(read: str, values: Mapping[str, Value]) -> Value:
        """The value that `read` means: `other` or `other:k`."""
        source, number = source_of(read)
        return values[source] if number is None else values[source][number]

    def canonical_names(self) -> dict[str, str]:
        """For each name of a parameter or buffer the one that a checkpoint has it under: the first of those it has."""
        tensors = (*self.named_parameters(remove_duplicate=False), *self.named_buffers(remove_duplicate=False))
        first: dict[int, str] = {}
        return {name: first.setdefault(id(tensor), name) for name, tensor in tensors}

    def shared_parameters(self) -> tuple[tuple[str, ...], ...]:
        """The names of each parameter that several layers have, as `named_parameters` spells them, in layer order."""
        owners: dict[int, list[str]] = defaultdict(list)
        for name, parameter in self.named_parameters(remove_duplicate=False):
            owners[id(parameter)].append(name)
        return tuple(tuple(names) for names in owners.values() if len({name.split(".", 2)[1] for name in names}) > 1)


def module_key(name: str) -> str:
    """The key of a layer in the `ModuleDict`, which has no dots and none of the names that `ModuleDict` uses itself.

    Names have no colon, so no two get the same key.
    """
    key = name.replace(".", ":")
    return f"{key}:" if hasattr(nn.ModuleDict, key) or key == "training" else key


def source_of(read: str) -> tuple[str, int | None]:
    """`other:2` as the layer and the number of the tensor in its tuple; None for all that it made."""
    source, colon, number = read.partition(":")
    return source, int(number) if colon else None


def _name_faults(layers: Mapping[str, nn.Module], inputs: tuple[str, ...]) -> Iterator[Fault]:
    if not layers:
        yield Fault("too_short", "a network has one layer or more", "/layers")
    for name in layers:
        if not name or ":" in name:
            yield Fault("wrong_name", f"{name!r}: a layer has a name, without a colon in it", f"/layers/{name}")
        if name in inputs:
            yield Fault("duplicate_id", f"{name!r} is both a layer and a model input; rename one", f"/layers/{name}")
    for number, name in enumerate(inputs):
        if name in inputs[:number]:
            yield Fault("duplicate_id", f"the model input {name!r} is named twice", f"/inputs/{number}")


def _read_faults(
    reads: Mapping[str, tuple[str, ...]], given: set[str], inputs: tuple[str, ...], output: str
) -> Iterator[Fault]:
    for name in given - set(reads):
        yield Fault("dangling_reference", f"reads are given for {name!r}, which is no layer", f"/reads/{name}")
    made = set(inputs)
    for name, sources in reads.items():
        for number, read in enumerate(sources):
            yield from _source_faults(read, made, set(reads), f"/reads/{name}/{number}")
        made.add(name)
    yield from _source_faults(output, made - set(inputs), set(reads), "/output")


def _source_faults(read: str, made: set[str], layers: set[str], pointer: str) -> Iterator[Fault]:
    source, colon, number = read.partition(":")
    if colon and not number.isdecimal():
        yield Fault("wrong_name", f"{read!r}: after the colon comes the number of a tensor, from 0", pointer)
    elif source not in made and source in layers:
        yield Fault("backward_edge", f"{source!r} comes later; give the layers in topological order", pointer)
    elif source not in made:
        yield Fault("dangling_reference", f"there is no layer or input {source!r}", pointer)
