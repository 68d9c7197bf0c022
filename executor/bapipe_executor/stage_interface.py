"""What crosses the cuts of a partition: for each stage, which tensors it receives, which it sends on.

A tensor is named `layer`, or `layer:k` where the layer makes a tuple. One that is read past the next stage is relayed
by the stages between. Model inputs never cross a cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.value_specs import Specs, TensorSpec


@dataclass(frozen=True)
class StageInterface:
    """`layers` in topological order; `receives` and `sends` tensors, `inputs` those of the model that a stage reads.

    The `last` stage sends nothing: it ends with the model's output.
    """

    layers: tuple[str, ...]
    receives: tuple[str, ...]
    inputs: tuple[str, ...]
    sends: tuple[str, ...]
    last: bool


def stage_interfaces(model: LayeredModel, stages: Sequence[Sequence[str]], specs: Specs) -> list[StageInterface]:
    """The interface of each stage."""
    last = len(stages) - 1
    stage_of = {layer: number for number, layers in enumerate(stages) for layer in layers}
    last_reader = _last_readers(model, stage_of, specs, last)
    cuts = [
        tuple(tensor for tensor, reader in last_reader.items() if stage_of[layer_of(tensor)] <= cut < reader)
        for cut in range(last)
    ]
    found = []
    for number in range(len(stages)):
        layers = tuple(name for name in model.names if stage_of[name] == number)
        read = {read for layer in layers for read in model.reads[layer]}
        inputs = tuple(name for name in model.inputs if name in read)
        found.append(StageInterface(layers, ((), *cuts)[number], inputs, (*cuts, ())[number], number == last))
    return found


def layer_of(tensor: str) -> str:
    """The layer that made a tensor."""
    return tensor.partition(":")[0]


def tensors_of(read: str, specs: Specs) -> tuple[str, ...]:
    """The tensors that `read` means; none for a model input."""
    source, colon, _ = read.partition(":")
    if source not in specs:
        return ()
    made = specs[source]
    if colon or isinstance(made, TensorSpec):
        return (read,)
    return tuple(f"{source}:{number}" for number in range(len(made)))


def spec_of(tensor: str, specs: Specs) -> TensorSpec:
    """The spec of a single tensor."""
    source, _, number = tensor.partition(":")
    made = specs[source]
    return made if isinstance(made, TensorSpec) else made[int(number)]


def _last_readers(model: LayeredModel, stage_of: Mapping[str, int], specs: Specs, last_stage: int) -> dict[str, int]:
    """The last stage that reads each tensor, in the order in which the tensors are made."""
    readers = dict.fromkeys(_all_tensors(model, specs), 0)
    for layer, reads in model.reads.items():
        for read in reads:
            for tensor in tensors_of(read, specs):
                readers[tensor] = max(readers[tensor], stage_of[layer])
    for tensor in tensors_of(model.output, specs):
        readers[tensor] = last_stage
    return readers


def _all_tensors(model: LayeredModel, specs: Specs) -> Iterator[str]:
    for name in model.names:
        yield from tensors_of(name, specs)
