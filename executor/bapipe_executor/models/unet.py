"""A segmenter like U-Net: Ronneberger, Fischer and Brox, arXiv 1505.04597, padded so that sides stay. Every level of
the way down is read again, much later, on the way up.
"""

from __future__ import annotations

import torch
from torch import nn

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.models.building import Concatenate, NetworkBuilder, seeded
from bapipe_executor.models.synthetic import SyntheticData, images_and_classes

__all__ = ["full", "full_data", "loss", "tiny", "tiny_data"]


def full(*, seed: int = 0) -> LayeredModel:
    """Four levels from 64 channels on, for images of three, two classes a pixel: 31,031,810 parameters."""
    with seeded(seed):
        return _network(levels=4, width=64, classes=2)


def tiny(*, seed: int = 0) -> LayeredModel:
    """Two levels, four channels at the first."""
    with seeded(seed):
        return _network(levels=2, width=4, classes=2)


def loss() -> Loss:
    """The mean cross entropy of classes."""
    return nn.CrossEntropyLoss()


def full_data(batch_size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> SyntheticData:
    """Images of 512 × 512 for `full`, a class each pixel."""
    return images_and_classes(batch_size, (3, 512, 512), 2, dtype, seed, per_pixel=True)


def tiny_data(batch_size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> SyntheticData:
    """Images of 16 × 16 for `tiny`, a class each pixel."""
    return images_and_classes(batch_size, (3, 16, 16), 2, dtype, seed, per_pixel=True)


def _network(*, levels: int, width: int, classes: int) -> LayeredModel:
    net = NetworkBuilder("images")
    skips = []
    channels = 3
    for level in range(levels):
        _convolutions(net, f"down{level}", channels, width << level)
        channels = width << level
        skips.append(net.last)
        net.add(f"down{level}.pool", nn.MaxPool2d(2))
    _convolutions(net, "bottom", channels, width << levels)
    for level in reversed(range(levels)):
        channels = width << level
        net.add(f"up{level}.enlarge", nn.ConvTranspose2d(2 * channels, channels, 2, stride=2))
        net.add(f"up{level}.join", Concatenate(1), skips[level], net.last)
        _convolutions(net, f"up{level}", 2 * channels, channels)
    net.add("classifier", nn.Conv2d(channels, classes, 1))
    return net.build()


def _convolutions(net: NetworkBuilder, name: str, inputs: int, outputs: int) -> None:
    for index, channels in enumerate((inputs, outputs)):
        net.add(f"{name}.conv{index}", nn.Conv2d(channels, outputs, 3, padding=1))
        net.add(f"{name}.relu{index}", nn.ReLU())
