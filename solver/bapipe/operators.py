"""What a layer computes, by shape: the operators from which an FPGA's time, traffic and energy are worked out.

Counts are of one sample. A layer may hold several operators, which run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from bapipe.errors import Fault
from bapipe.faults import Count, Document, Flag, member

OperatorKind = Literal[
    "convolution", "linear", "lstm", "attention", "normalisation", "pooling", "elementwise", "embedding"
]


class Convolution(Document):
    """`kernel_positions` weights (9 for 3 × 3) between each input channel and output channel of a group.

    `input_gradient` false: the first layer of a network, whose input needs no gradient.
    """

    kind: Literal["convolution"]
    in_channels: Count
    out_channels: Count
    kernel_positions: Count
    out_pixels: Count
    groups: Count = 1
    input_gradient: Flag = True

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        groups = member(raw, "groups")
        for field in ("in_channels", "out_channels"):
            channels = member(raw, field)
            if isinstance(groups, int) and isinstance(channels, int) and groups >= 1 and channels % groups:
                yield Fault("does_not_divide", f"{groups} groups do not share {channels} {field} evenly", "/groups")


class Linear(Document):
    """A product with a matrix of weights, for each of `rows` (the tokens of a sequence, or 1)."""

    kind: Literal["linear"]
    in_features: Count
    out_features: Count
    rows: Count = 1
    input_gradient: Flag = True


class Lstm(Document):
    """Four gates, over `steps` of a sequence; each step waits for the one before and reads the recurrent weights."""

    kind: Literal["lstm"]
    in_features: Count
    hidden: Count
    steps: Count
    directions: Count = 1
    input_gradient: Flag = True


class Attention(Document):
    """Scores of every query with every key, softmax, and the mean of the values by it; no weights of its own."""

    kind: Literal["attention"]
    queries: Count
    keys: Count
    heads: Count
    head_features: Count


class Normalisation(Document):
    """Mean and variance of `elements`, then scale and shift: `operations` for each."""

    kind: Literal["normalisation"]
    elements: Count
    operations: Count = 8


class Pooling(Document):
    """One output element for each window of `window` input elements."""

    kind: Literal["pooling"]
    out_elements: Count
    window: Count


class Elementwise(Document):
    """`operations` for each of `elements`, in the order in which they come: activations, sums, dropout, copies."""

    kind: Literal["elementwise"]
    elements: Count
    operations: Count = 1


class Embedding(Document):
    """`lookups` rows of `width` from a table; only those rows are read, and get a gradient."""

    kind: Literal["embedding"]
    lookups: Count
    width: Count


Operator = Annotated[
    Convolution | Linear | Lstm | Attention | Normalisation | Pooling | Elementwise | Embedding,
    Field(discriminator="kind"),
]

IN_STREAM: tuple[OperatorKind, ...] = ("pooling", "elementwise")
"""Operators that work on what passes by, without a tensor of their own to read it from."""
