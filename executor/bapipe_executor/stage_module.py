"""The layers of one stage as a module of tensors: what it receives and the model's inputs in, what it sends out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from bapipe_executor.layered_model import LayeredModel, Value, module_key
from bapipe_executor.recomputation import Context, Recomputation
from bapipe_executor.stage_interface import StageInterface, layer_of, spec_of, tensors_of
from bapipe_executor.value_specs import Specs


@dataclass(frozen=True)
class Segment:
    """Layers that run one behind the other, and again before their backward if they are `recomputed`."""

    layers: tuple[str, ...]
    recomputed: bool


class StageModule(nn.Module):
    """Runs the layers of a stage. Received tensors come by position, model inputs by name.

    `model` may be an outline: its layers are taken from `layers`, by their keys. `context` is opened around every run,
    such as autocast.
    """

    def __init__(
        self,
        model: LayeredModel,
        layers: nn.ModuleDict,
        interface: StageInterface,
        specs: Specs,
        recomputed: Collection[str] = (),
        context: Context = nullcontext,
    ) -> None:
        super().__init__()
        self.interface = interface
        self.output = tensors_of(model.output, specs) if interface.last else ()
        self.output_is_tuple = isinstance(specs[layer_of(model.output)], tuple) and ":" not in model.output
        self._reads = {
            layer: tuple(_Argument(read, model.inputs, specs) for read in model.reads[layer])
            for layer in interface.layers
        }
        self._segments = tuple(_segments(interface.layers, recomputed))
        self._specs, self._context = specs, context
        self._recomputations: list[Recomputation] = []
        self._needed = _needed_after(self._segments, self._reads, (*interface.sends, *self.output))
        self.layers = nn.ModuleDict({key: layers[key] for key in map(module_key, interface.layers)})

    def forward(self, *received: Tensor, **inputs: Tensor) -> Any:
        """What the stage sends, as a tuple; of the last stage the model's output."""
        with self._context():
            return self._forward(received, inputs)

    def taken_recomputations(self) -> list[Recomputation]:
        """What the last forward has left to be run again; it is handed out once."""
        taken, self._recomputations = self._recomputations, []
        return taken

    def _forward(self, received: tuple[Tensor, ...], inputs: dict[str, Tensor]) -> Any:
        tensors = inputs | dict(zip(self.interface.receives, aliases(received), strict=True))
        for segment, needed in zip(self._segments, self._needed, strict=True):
            self._run(segment, tensors, needed)
            tensors = {name: tensor for name, tensor in tensors.items() if name in needed or name in inputs}
        if self.interface.last:
            output = tuple(tensors[name] for name in self.output)
            return output if self.output_is_tuple else output[0]
        return tuple(tensors[name].contiguous() for name in self.interface.sends)

    def _run(self, segment: Segment, tensors: dict[str, Tensor], needed: Collection[str]) -> None:
        """Adds what the segment makes to `tensors`; of a recomputed one what is needed after it."""
        if not segment.recomputed:
            for layer in segment.layers:
                self._call(layer, tensors)
            return
        read = _read_by(segment, self._reads)
        given = {name: tensor for name, tensor in tensors.items() if name in read}
        made = tuple(name for name in needed if layer_of(name) in segment.layers)

        def run(*values: Tensor) -> tuple[Tensor, ...]:
            inner = dict(zip(given, aliases(values), strict=True))
            for layer in segment.layers:
                self._call(layer, inner)
            return tuple(inner[name] for name in made)

        parameters = [p for layer in segment.layers for p in self.layers[module_key(layer)].parameters()]
        recomputation = Recomputation(run, parameters, self._context)
        differentiable = [spec_of(name, self._specs).requires_grad for name in made]
        tensors.update(zip(made, recomputation(tuple(given.values()), differentiable), strict=True))
        self._recomputations.append(recomputation)

    def _call(self, layer: str, tensors: dict[str, Tensor]) -> None:
        try:
            made: Value = self.layers[module_key(layer)](*(argument.of(tensors) for argument in self._reads[layer]))
        except Exception as error:
            error.add_note(f"in layer {layer!r}")
            raise
        if isinstance(made, Tensor):
            tensors[layer] = made
        else:
            tensors.update({f"{layer}:{number}": tensor for number, tensor in enumerate(made)})


class _Argument:
    """An argument of a layer: a tensor, or a tuple of them."""

    def __init__(self, read: str, inputs: Collection[str], specs: Specs) -> None:
        self.names = (read,) if read in inputs else tensors_of(read, specs)
        self.of: Callable[[Mapping[str, Tensor]], Value] = self._one if read in self.names else self._all

    def _one(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return tensors[self.names[0]]

    def _all(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return tuple(tensors[name] for name in self.names)


class _Alias(torch.autograd.Function):
    """The same tensors, but not leaves of the graph, which layers that work in place must not change."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return gradients


def aliases(received: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    differentiable = [tensor for tensor in received if tensor.requires_grad]
    if not differentiable:
        return received
    aliases: Iterator[Tensor] = iter(_Alias.apply(*differentiable))  # type: ignore[no-untyped-call]
    return tuple(next(aliases) if tensor.requires_grad else tensor for tensor in received)


def _segments(layers: tuple[str, ...], recomputed: Collection[str]) -> Iterator[Segment]:
    """Single layers, and runs of neighbours that are all recomputed."""
    for again, group in groupby(layers, lambda layer: layer in recomputed):
        if again:
            yield Segment(tuple(group), True)
        else:
            yield from (Segment((layer,), False) for layer in group)


def _needed_after(
    segments: tuple[Segment, ...], reads: Mapping[str, tuple[_Argument, ...]], ends: tuple[str, ...]
) -> tuple[frozenset[str], ...]:
    """The tensors that are still read after each segment."""
    needed = set(ends)
    found = []
    for segment in reversed(segments):
        found.append(frozenset(needed))
        needed |= _read_by(segment, reads)
    return tuple(reversed(found))


def _read_by(segment: Segment, reads: Mapping[str, tuple[_Argument, ...]]) -> set[str]:
    return {name for layer in segment.layers for argument in reads[layer] for name in argument.names}
