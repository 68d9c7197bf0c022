"""ResNet-50 for images of 224 × 224: He, Zhang, Ren and Sun, arXiv 1512.03385, table 1, with the stride of a block in
its 3 × 3 convolution (version 1.5). Its batch norms see one micro-batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.models.building import Add, NetworkBuilder, seeded
from bapipe_executor.models.synthetic import SyntheticData, images_and_classes

__all__ = ["full", "full_data", "loss", "tiny", "tiny_data"]

GROUPS = ((64, 3), (128, 4), (256, 6), (512, 3))
TINY_GROUPS = ((4, 1), (8, 2))
"""Channels inside the blocks, and blocks."""
EXPANSION = 4


def full(*, seed: int = 0) -> LayeredModel:
    """25,557,032 parameters, 1,000 classes."""
    with seeded(seed):
        return _network(GROUPS, width=64, classes=1000)


def tiny(*, seed: int = 0) -> LayeredModel:
    """Two groups for images of 32 × 32, ten classes."""
    with seeded(seed):
        return _network(TINY_GROUPS, width=4, classes=10)


def loss() -> Loss:
    """The mean cross entropy of classes."""
    return nn.CrossEntropyLoss()


def full_data(batch_size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> SyntheticData:
    """Images for `full`."""
    return images_and_classes(batch_size, (3, 224, 224), 1000, dtype, seed)


def tiny_data(batch_size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> SyntheticData:
    """Images for `tiny`."""
    return images_and_classes(batch_size, (3, 32, 32), 10, dtype, seed)


def _network(groups: Sequence[tuple[int, int]], *, width: int, classes: int) -> LayeredModel:
    net = NetworkBuilder("images")
    _convolution(net, "stem", 3, width, kernel=7, stride=2)
    net.add("stem.relu", nn.ReLU())
    net.add("stem.pool", nn.MaxPool2d(3, stride=2, padding=1))
    channels = width
    for group, (inner, blocks) in enumerate(groups):
        for block in range(blocks):
            stride = 2 if block == 0 and group > 0 else 1
            _bottleneck(net, f"group{group}.block{block}", channels, inner, stride)
            channels = EXPANSION * inner
    net.add("average", nn.AdaptiveAvgPool2d(1))
    net.add("flatten", nn.Flatten())
    net.add("classifier", nn.Linear(channels, classes))
    return net.build()


def _convolution(
    net: NetworkBuilder, name: str, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, source: str = ""
) -> str:
    """A convolution that keeps the side but for its stride, and its batch norm; reads the last layer, or `source`."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    net.add(f"{name}.conv", layer, *([source] if source else []))
    return net.add(f"{name}.norm", nn.BatchNorm2d(outputs))


def _bottleneck(net: NetworkBuilder, name: str, inputs: int, inner: int, stride: int) -> None:
    source, outputs = net.last, EXPANSION * inner
    _convolution(net, f"{name}.1", inputs, inner)
    net.add(f"{name}.1.relu", nn.ReLU())
    _convolution(net, f"{name}.2", inner, inner, kernel=3, stride=stride)
    net.add(f"{name}.2.relu", nn.ReLU())
    main = _convolution(net, f"{name}.3", inner, outputs)
    skip = source
    if stride != 1 or inputs != outputs:
        skip = _convolution(net, f"{name}.skip", inputs, outputs, stride=stride, source=source)
    net.add(f"{name}.add", Add(), main, skip)
    net.add(f"{name}.relu", nn.ReLU())
