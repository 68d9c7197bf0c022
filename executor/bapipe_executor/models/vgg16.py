"""VGG-16 for images of 224 × 224: Simonyan and Zisserman, arXiv 1409.1556, configuration D."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.models.building import NetworkBuilder, seeded
from bapipe_executor.models.synthetic import SyntheticData, images_and_classes
from bapipe_executor.output_split import split_linear

__all__ = [
    *("full", "full_data", "full_split", "full_split_data"),
    *("loss",),
    *("tiny", "tiny_data", "tiny_split", "tiny_split_data"),
]

GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
TINY_GROUPS = ((4, 2), (8, 2))
"""Channels, and convolutions before the group's pooling."""

WIDEST, SPLIT_PARTS = "linear0", 8


def full(*, seed: int = 0, dropout: float = 0.5) -> LayeredModel:
    """138,357,544 parameters, 1,000 classes."""
    with seeded(seed):
        return _network(GROUPS, side=224, hidden=4096, classes=1000, dropout=dropout)


def tiny(*, seed: int = 0, dropout: float = 0.0) -> LayeredModel:
    """Two groups for images of 16 × 16, ten classes."""
    with seeded(seed):
        return _network(TINY_GROUPS, side=16, hidden=32, classes=10, dropout=dropout)


def full_split(*, seed: int = 0, dropout: float = 0.5) -> LayeredModel:
    """`full`, with its first linear layer, 74 % of the parameters, in eight parts between which a plan can cut."""
    return split_linear(full(seed=seed, dropout=dropout), WIDEST, SPLIT_PARTS)


def tiny_split(*, seed: int = 0, dropout: float = 0.0) -> LayeredModel:
    """`tiny`, with its first linear layer in eight parts."""
    return split_linear(tiny(seed=seed, dropout=dropout), WIDEST, SPLIT_PARTS)


def loss() -> Loss:
    """The mean cross entropy of classes."""
    return nn.CrossEntropyLoss()


def full_data(batch_size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> SyntheticData:
    """Images for `full`."""
    return images_and_classes(batch_size, (3, 224, 224), 1000, dtype, seed)


def tiny_data(batch_size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> SyntheticData:
    """Images for `tiny`."""
    return images_and_classes(batch_size, (3, 16, 16), 10, dtype, seed)


full_split_data, tiny_split_data = full_data, tiny_data


def _network(
    groups: Sequence[tuple[int, int]], *, side: int, hidden: int, classes: int, dropout: float
) -> LayeredModel:
    net = NetworkBuilder("images")
    channels = 3
    for group, (width, convolutions) in enumerate(groups):
        for index in range(convolutions):
            net.add(f"group{group}.conv{index}", nn.Conv2d(channels, width, 3, padding=1))
            net.add(f"group{group}.relu{index}", nn.ReLU())
            channels = width
        net.add(f"group{group}.pool", nn.MaxPool2d(2))
    net.add("flatten", nn.Flatten())
    features = channels * (side >> len(groups)) ** 2
    for index in range(2):
        net.add(f"linear{index}", nn.Linear(features, hidden))
        net.add(f"linear{index}.relu", nn.ReLU())
        net.add(f"linear{index}.dropout", nn.Dropout(dropout))
        features = hidden
    net.add("classifier", nn.Linear(hidden, classes))
    return net.build()
