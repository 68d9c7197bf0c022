"""Layers of networks on sequences. A sample is one sequence, or one pair of them; `tokens` is how long it is."""

from __future__ import annotations

from bapipe.examples.kernels import ELEMENT_BYTES, Kernel, Work, matmul, pointwise, product
from bapipe.operators import Attention, Elementwise, Embedding, Linear, Lstm

TOKEN_ID_ELEMENTS = 2
"""A token id has 64 bits."""


def embedding(name: str, rows: int, width: int, tokens: int, tables: int = 1) -> Work:
    """The sum of a row of each of `tables` tables, `rows` in all. The gradient is a dense table, written in full."""
    elements, parameters = tokens * width, rows * width
    lookup = Kernel(elements, tables * elements + TOKEN_ID_ELEMENTS * tokens, elements, input_gradients=0)
    gradient = Kernel(elements, elements, 0, parameters, forward=0, input_gradients=0, weight_gradients=1)
    kept_bytes = elements * ELEMENT_BYTES
    operators = (Embedding(kind="embedding", lookups=tables * tokens, width=width),)
    return Work(name, f"Embedding({rows}, {width})", (lookup, gradient), operators, parameters, elements, kept_bytes)


def project(inputs: int, outputs: int, tokens: int, *, bias: bool = True) -> Kernel:
    """A fully connected layer on every token: 2·in·out FLOPs each."""
    weights = inputs * outputs + (outputs if bias else 0)
    return matmul(tokens * inputs, tokens * outputs, weights, 2.0 * tokens * inputs * outputs)


def linear(name: str, inputs: int, outputs: int, tokens: int, *, bias: bool = True) -> Work:
    """`project` as a layer of its own; the loss that follows keeps its output."""
    kernel = project(inputs, outputs, tokens, bias=bias)
    operators = (Linear(kind="linear", in_features=inputs, out_features=outputs, rows=tokens),)
    elements, kind = tokens * outputs, f"Linear({inputs}, {outputs})"
    return Work(name, kind, (kernel,), operators, int(kernel.weights), elements, elements * ELEMENT_BYTES)


def layer_norm(width: int, tokens: int) -> Kernel:
    """Two passes for mean and variance and one for the result, about 8 operations an element; scale and shift."""
    elements = tokens * width
    return pointwise(2 * elements, elements, 8 * elements, 2 * width)


def lstm(name: str, inputs: int, width: int, tokens: int, *, directions: int = 1) -> Work:
    """A layer of LSTM: 4 gates, 4·h·(in + h + 2) parameters a direction (two biases, as cuDNN has them).

    The inputs of all steps are one product; the recurrence reads its weights again at every step. Kept: gates and cell
    states of all steps, and the output.
    """
    steps = _recurrence(width, tokens)
    kernels = (project(inputs, 4 * width, tokens), steps) * directions
    parameters = directions * 4 * width * (inputs + width + 2)
    output = directions * tokens * width
    kept_bytes = (directions * 5 * tokens * width + output) * ELEMENT_BYTES
    operators = (Lstm(kind="lstm", in_features=inputs, hidden=width, steps=tokens, directions=directions),)
    kind = f"LSTM({inputs}, {width}, directions={directions})"
    return Work(name, kind, kernels, operators, parameters, output, kept_bytes)


def attention_lstm(name: str, inputs: int, width: int, tokens: int, memory_tokens: int) -> Work:
    """An LSTM and Bahdanau attention (arXiv 1409.0473) of its output over an encoder's: score v·tanh(W q + U k), with v
    normalised (a scale and a bias), softmax over the `memory_tokens`, and the mean of the keys by it.

    Writes its output and the context, one after the other. Kept besides the LSTM's: queries, keys, tanh of their sums,
    scores, both outputs.
    """
    recurrent = lstm(name, inputs, width, tokens)
    pairs, stream, memory = tokens * memory_tokens, tokens * width, memory_tokens * width
    kernels = (
        *recurrent.kernels,
        project(width, width, tokens, bias=False),
        project(width, width, memory_tokens, bias=False),
        pointwise(stream + memory, pairs * width, 2 * pairs * width, 2 * width),
        pointwise(pairs * width, pairs, 2 * pairs * width),
        pointwise(pairs, pairs, 5 * pairs),
        product(pairs + memory, stream, 2.0 * pairs * width),
    )
    parameters = recurrent.parameters + 2 * width**2 + 2 * width + 1
    kept = stream + memory + pairs * width + 2 * pairs + stream
    kept_bytes = recurrent.kept_bytes + kept * ELEMENT_BYTES
    operators = (
        *recurrent.operators,
        Linear(kind="linear", in_features=width, out_features=width, rows=tokens),
        Linear(kind="linear", in_features=width, out_features=width, rows=memory_tokens),
        Elementwise(kind="elementwise", elements=pairs * width, operations=4),
        Attention(kind="attention", queries=tokens, keys=memory_tokens, heads=1, head_features=width),
    )
    kind = f"LSTM attention({inputs}, {width})"
    return Work(name, kind, kernels, operators, parameters, 2 * stream, kept_bytes)


def dropout(name: str, elements: int) -> Work:
    """Keeps its output, which the next layer saves, and a byte of mask an element."""
    kernel, operators = pointwise(elements, elements), (Elementwise(kind="elementwise", elements=elements),)
    kept_bytes = elements * (ELEMENT_BYTES + 1)
    return Work(name, "Dropout(p=0.2)", (kernel,), operators, 0, elements, kept_bytes, streamable=True)


def concatenate(name: str, *elements: int) -> Work:
    """A copy of tensors side by side; the next layer saves it."""
    total = sum(elements)
    kernel, operators = pointwise(total, total, 0.0), (Elementwise(kind="elementwise", elements=total),)
    return Work(name, "Concat", (kernel,), operators, 0, total, total * ELEMENT_BYTES, streamable=True)


def add(name: str, elements: int) -> Work:
    """A residual sum; the dropout, layer or projection that follows keeps what it needs of it."""
    kernel, operators = pointwise(2 * elements, elements), (Elementwise(kind="elementwise", elements=elements),)
    return Work(name, "Add", (kernel,), operators, 0, elements, elements * ELEMENT_BYTES, streamable=True)


def _recurrence(width: int, tokens: int) -> Kernel:
    weights = 4.0 * width * (width + 1)
    return Kernel(
        flops=tokens * (8.0 * width**2 + 30.0 * width),
        reads=tokens * 4 * width,
        writes=tokens * 6 * width,
        weights=weights,
        weight_reads=tokens,
        weight_gradients=1,
    )
