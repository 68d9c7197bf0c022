"""What an operator computes in each phase: products for the arrays of an FPGA, and element-wise operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bapipe.operators import (
    Attention,
    Convolution,
    Elementwise,
    Embedding,
    Linear,
    Lstm,
    Normalisation,
    Operator,
    OperatorKind,
    Pooling,
)

SOFTMAX_OPERATIONS = 5
"""A score's maximum, difference, exponential, sum and quotient."""

CELL_OPERATIONS = 30
"""Of an LSTM's gates and states for each hidden element and step, exponentials as several."""


@dataclass(frozen=True)
class Product:
    """`rows` of one sample times a matrix of `inputs` × `outputs`, `turns` times. `waits`: so many parts of the rows
    come one after the other, each when the one before is done.
    """

    rows: int
    inputs: int
    outputs: int
    turns: int = 1
    waits: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample."""
        return self.rows * self.turns * self.inputs * self.outputs

    def turned(self) -> Product:
        """The product with the transposed matrix."""
        return replace(self, inputs=self.outputs, outputs=self.inputs)


@dataclass(frozen=True)
class Phase:
    """One sample's products and element-wise operations."""

    products: tuple[Product, ...] = ()
    operations: int = 0


@dataclass(frozen=True)
class Phases:
    """An operator's three phases, and the elements of weights that they read: `forward_reads` and `input_reads` once a
    micro-batch in a forward and an input gradient, `sample_reads` for each sample of a forward.
    """

    kind: OperatorKind
    forward: Phase
    input_gradient: Phase = Phase()
    weight_gradient: Phase = Phase()
    forward_reads: int = 0
    input_reads: int = 0
    sample_reads: int = 0

    @property
    def each(self) -> tuple[Phase, Phase, Phase]:
        """Forward, input gradient, weight gradient."""
        return self.forward, self.input_gradient, self.weight_gradient


def phases_of(operator: Operator) -> Phases:
    """The phases of an operator."""
    return _PHASES[operator.kind](operator)


def _convolution(operator: Convolution) -> Phases:
    groups = operator.groups
    product = Product(
        operator.out_pixels,
        operator.in_channels // groups,
        operator.out_channels // groups,
        turns=operator.kernel_positions * groups,
    )
    return _weighted(operator, product, product.inputs * product.outputs * product.turns)


def _linear(operator: Linear) -> Phases:
    product = Product(operator.rows, operator.in_features, operator.out_features)
    return _weighted(operator, product, product.inputs * product.outputs)


def _weighted(operator: Convolution | Linear, product: Product, weights: int) -> Phases:
    """As many products in each phase: of inputs with weights, of gradients with weights, of inputs with gradients."""
    back = Phase((product.turned(),)) if operator.input_gradient else Phase()
    back_reads = weights if operator.input_gradient else 0
    return Phases(operator.kind, Phase((product,)), back, Phase((product,)), weights, back_reads)


def _lstm(operator: Lstm) -> Phases:
    """The inputs of all steps are one product; the recurrence comes step by step, and reads its weights at each."""
    hidden, turns = operator.hidden, operator.directions
    inputs = Product(operator.steps, operator.in_features, 4 * hidden, turns)
    recurrence = Product(operator.steps, hidden, 4 * hidden, turns, waits=operator.steps)
    cells = CELL_OPERATIONS * hidden * operator.steps * turns
    first = (inputs.turned(),) if operator.input_gradient else ()
    again, once = 4 * hidden * turns * hidden * operator.steps, 4 * hidden * turns * operator.in_features
    return Phases(
        operator.kind,
        Phase((inputs, recurrence), cells),
        Phase((*first, recurrence.turned()), cells),
        Phase((inputs, replace(recurrence, waits=1))),
        forward_reads=again + once,
        input_reads=again + (once if operator.input_gradient else 0),
    )


def _attention(operator: Attention) -> Phases:
    """Scores and context, and in the backward for each the gradients of both of its factors."""
    heads, width = operator.heads, operator.head_features
    scores = Product(operator.queries, width, operator.keys, heads)
    context = Product(operator.queries, operator.keys, width, heads)
    of_keys = Product(operator.keys, operator.queries, width, heads)
    softmax = SOFTMAX_OPERATIONS * operator.queries * operator.keys * heads
    back = Phase((context.turned(), of_keys, scores.turned(), of_keys), softmax)
    return Phases(operator.kind, Phase((scores, context), softmax), back)


def _embedding(operator: Embedding) -> Phases:
    elements = operator.lookups * operator.width
    moved = Phase(operations=elements)
    return Phases(operator.kind, moved, Phase(), moved, sample_reads=elements)


def _pointwise(operator: Normalisation | Elementwise | Pooling) -> Phases:
    """As many operations backward as forward; those for the few weights of a norm come with that of its input."""
    if isinstance(operator, Pooling):
        phase = Phase(operations=operator.out_elements * operator.window)
    else:
        phase = Phase(operations=operator.elements * operator.operations)
    return Phases(operator.kind, phase, phase)


_PHASES: dict[OperatorKind, Callable[[Any], Phases]] = {
    "convolution": _convolution,
    "linear": _linear,
    "lstm": _lstm,
    "attention": _attention,
    "normalisation": _pointwise,
    "pooling": _pointwise,
    "elementwise": _pointwise,
    "embedding": _embedding,
}
