"""Builds a `LayeredModel` layer by layer, from the first to the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from bapipe_executor.layered_model import LayeredModel


class NetworkBuilder:
    """The layers so far and what each reads; `last` is the layer added last, or the first input before any."""

    def __init__(self, *inputs: str) -> None:
        self.inputs = inputs
        self.layers: dict[str, nn.Module] = {}
        self.reads: dict[str, tuple[str, ...]] = {}
        self.last = inputs[0]

    def add(self, name: str, layer: nn.Module, *reads: str) -> str:
        """Adds a layer that reads `reads`, or the last layer where none is given; returns its name."""
        self.layers[name] = layer
        self.reads[name] = reads or (self.last,)
        self.last = name
        return name

    def build(self) -> LayeredModel:
        """The network, whose output is that of its last layer."""
        return LayeredModel(self.layers, self.reads, inputs=self.inputs, output=self.last)


class Add(nn.Module):
    """The sum of two tensors, where a residual connection ends."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Returns `left + right`, of the same shape."""
        return left + right


class Concatenate(nn.Module):
    """Tensors one behind the other along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        """Returns the parts, joined in their order."""
        return torch.cat(parts, dim=self.dim)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of the CPU start from `seed` inside, and are as they were afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
