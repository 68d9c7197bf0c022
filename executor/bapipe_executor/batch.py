"""What a training loop is fed: batches, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from bapipe.errors import Fault


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


def batch_faults(batch: object, size: int | None = None) -> list[Fault]:
    """Why something is no batch, of `size` samples if given; pointers are into the batch."""
    if not isinstance(batch, Batch):
        return [Fault("wrong_batch", f"it is {_kind(batch)}; give a bapipe_executor.Batch(inputs, target)")]
    if not isinstance(batch.inputs, Mapping):
        return [
            Fault("wrong_batch", f"its inputs are {_kind(batch.inputs)}; give a dict, the tensors by name", "/inputs")
        ]
    faults = []
    for pointer, tensor in (*((f"/inputs/{name}", t) for name, t in batch.inputs.items()), ("/target", batch.target)):
        if not isinstance(tensor, Tensor) or not tensor.dim():
            what = "a number" if isinstance(tensor, Tensor) else _kind(tensor)
            detail = f"it is {what}; give a tensor with the samples in its first dimension"
            faults.append(Fault("wrong_batch", detail, pointer))
        elif size is not None and len(tensor) != size:
            detail = f"{len(tensor)} samples, where {size} are asked for"
            faults.append(Fault("batch_mismatch", detail, pointer))
    return faults


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


class BatchSource(Protocol):
    """What `module:factory` of `--data` returns when it is called with the number of samples of a mini-batch.

    Every rank makes its own, and all must give the same batches in the same order, each time they are iterated from
    the start: a run that resumes after n steps skips n batches.
    """

    def __iter__(self) -> Iterator[Batch]: ...
