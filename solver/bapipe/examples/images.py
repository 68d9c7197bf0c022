"""Layers of convolutional networks, and the feature map that passes between them."""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.examples.kernels import ELEMENT_BYTES, Work, matmul, pointwise
from bapipe.operators import Convolution, Elementwise, Linear, Normalisation, Pooling

INDEX_BYTES = 8


@dataclass(frozen=True)
class Map:
    """A feature map: channels × side × side."""

    channels: int
    side: int

    @property
    def elements(self) -> int:
        """Elements of one sample."""
        return self.channels * self.side**2

    def after(self, channels: int, kernel: int, stride: int, padding: int) -> Map:
        """The map that a square window leaves: side (side + 2·padding - kernel) / stride + 1, rounded down."""
        return Map(channels, (self.side + 2 * padding - kernel) // stride + 1)


def conv(
    name: str,
    source: Map,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: bool = False,
    kept: bool = True,
    first: bool = False,
) -> tuple[Work, Map]:
    """A square convolution: 2·k²·C_in·C_out FLOPs per output position. `kept`: whether the next layer saves it."""
    target = source.after(channels, kernel, stride, padding)
    weights = kernel**2 * source.channels * channels + (channels if bias else 0)
    flops = 2.0 * kernel**2 * source.channels * target.elements
    kind = f"Conv2d({source.channels}, {channels}, kernel_size={kernel}, stride={stride}, padding={padding})"
    work = Work(
        id=name,
        kind=kind,
        kernels=(matmul(source.elements, target.elements, weights, flops, first=first),),
        operators=(
            Convolution(
                kind="convolution",
                in_channels=source.channels,
                out_channels=channels,
                kernel_positions=kernel**2,
                out_pixels=target.side**2,
                input_gradient=not first,
            ),
        ),
        parameters=weights,
        output=target.elements,
        kept_bytes=target.elements * ELEMENT_BYTES if kept else 0,
        streamable=True,
    )
    return work, target


def batch_norm(name: str, source: Map) -> Work:
    """Scale and shift per channel, after two passes for mean and variance. The ReLU or addition that follows overwrites
    its output; its statistics, a few bytes a channel, are left out.
    """
    elements, weights = source.elements, 2 * source.channels
    kernel = pointwise(2 * elements, elements, 8 * elements, weights)
    operators = (Normalisation(kind="normalisation", elements=elements),)
    return Work(name, f"BatchNorm2d({source.channels})", (kernel,), operators, weights, elements, kept_bytes=0)


def relu(name: str, elements: int) -> Work:
    """In place: its output is what is kept."""
    kernel, operators = pointwise(elements, elements), (Elementwise(kind="elementwise", elements=elements),)
    kept_bytes = elements * ELEMENT_BYTES
    return Work(name, "ReLU(inplace)", (kernel,), operators, 0, elements, kept_bytes, streamable=True)


def add(name: str, elements: int) -> Work:
    """The sum of two maps, in the place of one; the ReLU that follows overwrites it."""
    kernel, operators = pointwise(2 * elements, elements), (Elementwise(kind="elementwise", elements=elements),)
    return Work(name, "Add", (kernel,), operators, 0, elements, kept_bytes=0, streamable=True)


def concatenation(name: str, elements: int) -> Work:
    """Vectors one behind the other; what follows keeps it, or its own output in its place."""
    kernel, operators = pointwise(elements, elements), (Elementwise(kind="elementwise", elements=elements),)
    return Work(name, "Concatenate", (kernel,), operators, 0, elements, kept_bytes=0, streamable=True)


def max_pool(name: str, source: Map, kernel: int, *, stride: int, padding: int = 0) -> tuple[Work, Map]:
    """Keeps its output, which the next layer saves, and the index of each maximum."""
    target = source.after(source.channels, kernel, stride, padding)
    pool = pointwise(source.elements, target.elements, kernel**2 * target.elements)
    kept = target.elements * (ELEMENT_BYTES + INDEX_BYTES)
    kind = f"MaxPool2d(kernel_size={kernel}, stride={stride}, padding={padding})"
    operators = (Pooling(kind="pooling", out_elements=target.elements, window=kernel**2),)
    return Work(name, kind, (pool,), operators, 0, target.elements, kept, streamable=True), target


def average_pool(name: str, source: Map) -> Work:
    """One number a channel."""
    kernel = pointwise(source.elements, source.channels, source.elements)
    operators = (Pooling(kind="pooling", out_elements=source.channels, window=source.side**2),)
    kept_bytes = source.channels * ELEMENT_BYTES
    return Work(name, "AdaptiveAvgPool2d(1)", (kernel,), operators, 0, source.channels, kept_bytes, streamable=True)


def linear(name: str, inputs: int, outputs: int, *, kept: bool = True) -> Work:
    """A fully connected layer: 2·in·out FLOPs."""
    weights = inputs * outputs + outputs
    kernel = matmul(inputs, outputs, weights, 2.0 * inputs * outputs)
    kept_bytes = outputs * ELEMENT_BYTES if kept else 0
    operators = (Linear(kind="linear", in_features=inputs, out_features=outputs),)
    return Work(name, f"Linear({inputs}, {outputs})", (kernel,), operators, weights, outputs, kept_bytes)


def dropout(name: str, elements: int) -> Work:
    """Keeps its output, which the next layer saves, and a byte of mask an element."""
    kernel, operators = pointwise(elements, elements), (Elementwise(kind="elementwise", elements=elements),)
    kept_bytes = elements * (ELEMENT_BYTES + 1)
    return Work(name, "Dropout(p=0.5)", (kernel,), operators, 0, elements, kept_bytes, streamable=True)
