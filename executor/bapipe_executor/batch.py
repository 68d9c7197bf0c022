"""What a training loop is fed: batches, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor


class Batch(NamedTuple):
    """One mini-batch: the model's inputs by name, and the target of the loss; samples in the first dimension of all."""

    inputs: Mapping[str, Tensor]
    target: Tensor

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.target)

    def microbatches(self, count: int) -> list[Batch]:
        """The batch in `count` equal parts, in order."""
        parts = {name: tensor.chunk(count) for name, tensor in self.inputs.items()}
        targets = self.target.chunk(count)
        return [Batch({name: part[k] for name, part in parts.items()}, targets[k]) for k in range(count)]

    def to(self, device: object) -> Batch:
        """The batch with its tensors on `device`."""
        return Batch({name: tensor.to(device) for name, tensor in self.inputs.items()}, self.target.to(device))  # type: ignore[call-overload]


class BatchSource(Protocol):
    """What `module:factory` of `--data` returns when it is called with the number of samples of a mini-batch.

    Every rank makes its own, and all must give the same batches in the same order, each time they are iterated from
    the start: a run that resumes after n steps skips n batches.
    """

    def __iter__(self) -> Iterator[Batch]: ...
