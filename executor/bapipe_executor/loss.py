"""Losses: the mean over what counts of a micro-batch, and how much of it counts.

The loss of a mini-batch is the mean over all that counts in it, however that falls into micro-batches: micro-batch k
weighs count_k / Σ count. A loss without a `count` weighs all micro-batches alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, target) of a micro-batch -> its mean loss, a scalar."""


@runtime_checkable
class CountingLoss(Protocol):
    """A loss that leaves some of its targets out, such as padding."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss over the targets that count; 0, with a gradient of 0, where none does."""
        ...

    def count(self, target: Tensor) -> Tensor:
        """How many targets count, a scalar."""
        ...


class MaskedCrossEntropy(nn.Module):
    """Cross entropy of class scores (..., classes) against targets (...), those of `ignore_index` left out."""

    def __init__(self, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the targets that count."""
        scores, flat = output.reshape(-1, output.shape[-1]), target.reshape(-1)
        total = functional.cross_entropy(scores, flat, ignore_index=self.ignore_index, reduction="sum")
        return total / self.count(target).clamp(min=1)

    def count(self, target: Tensor) -> Tensor:
        """How many targets are not `ignore_index`."""
        return (target != self.ignore_index).sum()


def microbatch_weights(loss: Loss, targets: Sequence[Tensor]) -> list[float]:
    """What the loss of each micro-batch weighs in that of the mini-batch; they sum to 1, or to 0 if nothing counts."""
    if not isinstance(loss, CountingLoss):
        return [1 / len(targets)] * len(targets)
    counts = torch.stack([loss.count(target) for target in targets]).double()
    return (counts / counts.sum().clamp(min=torch.finfo(torch.double).tiny)).tolist()
