"""What may watch, or delay, the operations of a rank while they are executed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor


class Observer:
    """Told of every operation of a rank, in its order. Each method may be left as it is. Names are such as `2F0`."""

    def started(self, given: Sequence[Tensor]) -> None:
        """A step starts; `given` are its inputs and targets, which are there throughout."""

    def before(self, name: str) -> None:
        """An operation is next; what it reads may not be there yet."""

    def around(self, name: str) -> AbstractContextManager[None]:
        """Opened around an operation, once what it reads is there."""
        return nullcontext()

    def held(self, tensor: Tensor) -> None:
        """The runtime keeps a tensor where autograd may not: a receive buffer, or what a stage has made to be sent."""

    def finished(self) -> None:
        """The last operation of a step has been executed, and all that was sent has left."""
