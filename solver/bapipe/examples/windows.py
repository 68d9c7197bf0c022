"""Layers of convolutional networks that look at one channel at a time, and the joining of channels. Windows are padded
to keep the side but for their stride.
"""

from __future__ import annotations

from bapipe.examples.images import INDEX_BYTES, Map
from bapipe.examples.kernels import ELEMENT_BYTES, Work, matmul, pointwise
from bapipe.operators import Convolution, Elementwise, Pooling


def depthwise(name: str, source: Map, kernel: int, stride: int) -> tuple[Work, Map]:
    """A convolution of each channel by itself: 2·k² FLOPs an output element. The next layer saves its output."""
    target = _strided(source, kernel, stride)
    channels, weights = source.channels, kernel**2 * source.channels
    work = Work(
        id=name,
        kind=f"Conv2d({channels}, {channels}, kernel_size={kernel}, stride={stride}, groups={channels})",
        kernels=(matmul(source.elements, target.elements, weights, 2.0 * kernel**2 * target.elements),),
        operators=(
            Convolution(
                kind="convolution",
                in_channels=channels,
                out_channels=channels,
                kernel_positions=kernel**2,
                out_pixels=target.side**2,
                groups=channels,
            ),
        ),
        parameters=weights,
        output=target.elements,
        kept_bytes=target.elements * ELEMENT_BYTES,
        streamable=True,
    )
    return work, target


def average_window(name: str, source: Map, kernel: int, stride: int) -> tuple[Work, Map]:
    """The mean of each window. Nothing needs its output again."""
    return _pool(name, source, kernel, stride, "AvgPool2d", kept_bytes=0)


def max_window(name: str, source: Map, kernel: int, stride: int) -> tuple[Work, Map]:
    """The maximum of each window. Keeps the index of each."""
    return _pool(name, source, kernel, stride, "MaxPool2d", kept_bytes=INDEX_BYTES)


def concatenate(name: str, target: Map) -> Work:
    """A copy of channels side by side; the ReLU that follows keeps its own output."""
    kernel = pointwise(target.elements, target.elements, 0.0)
    operators = (Elementwise(kind="elementwise", elements=target.elements),)
    return Work(name, "Concat", (kernel,), operators, 0, target.elements, kept_bytes=0, streamable=True)


def _pool(name: str, source: Map, kernel: int, stride: int, kind: str, kept_bytes: int) -> tuple[Work, Map]:
    target = _strided(source, kernel, stride)
    pool = pointwise(source.elements, target.elements, kernel**2 * target.elements)
    operators = (Pooling(kind="pooling", out_elements=target.elements, window=kernel**2),)
    text, kept = f"{kind}(kernel_size={kernel}, stride={stride})", kept_bytes * target.elements
    return Work(name, text, (pool,), operators, 0, target.elements, kept, streamable=True), target


def _strided(source: Map, kernel: int, stride: int) -> Map:
    return source.after(source.channels, kernel, stride, kernel // 2)
