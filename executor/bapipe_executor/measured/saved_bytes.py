"""Bytes that autograd keeps for backwards, receive buffers, and what is sent until its backward, moment by moment.

A storage counts once, from the first tensor of it that is kept to the last that is let go. Parameters, buffers of
modules and the inputs of the model are there anyway, and do not count.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class SavedBytes:
    """`peak` is the most bytes that were held at once so far."""

    def __init__(self) -> None:
        self.peak = 0
        self._now = 0
        self._users: Counter[int] = Counter()
        self._lasting: set[int] = set()
        self._for_now: dict[int, Tensor] = {}

    def leave_out(self, tensors: Iterable[Tensor]) -> None:
        """Tensors that are there anyway, as long as they are."""
        self._lasting.update(_storage(tensor) for tensor in tensors)

    def leave_out_for_now(self, tensors: Iterable[Tensor]) -> None:
        """Tensors that are there anyway until this is called again; they are kept, so that none takes their place."""
        self._for_now = {_storage(tensor): tensor for tensor in tensors}

    def hold(self, tensor: Tensor) -> None:
        """Counts a tensor as long as it exists."""
        storage, size = _storage(tensor), tensor.untyped_storage().nbytes()
        self._take(storage, size)
        weakref.finalize(tensor, self._let_go, storage, size)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Counts what autograd keeps of the operations inside."""
        with saved_tensors_hooks(lambda tensor: _Kept(self, tensor), lambda kept: kept.tensor):
            yield

    def _take(self, storage: int, size: int) -> None:
        if storage in self._lasting or storage in self._for_now:
            return
        self._users[storage] += 1
        if self._users[storage] == 1:
            self._now += size
            self.peak = max(self.peak, self._now)

    def _let_go(self, storage: int, size: int) -> None:
        if storage not in self._users:
            return
        self._users[storage] -= 1
        if not self._users[storage]:
            del self._users[storage]
            self._now -= size


class _Kept:
    """A tensor in the hands of autograd."""

    def __init__(self, counted: SavedBytes, tensor: Tensor) -> None:
        self.tensor = tensor
        size = tensor.untyped_storage().nbytes()
        counted._take(_storage(tensor), size)
        weakref.finalize(self, counted._let_go, _storage(tensor), size)


def _storage(tensor: Tensor) -> int:
    """The address of a storage, which no other has as long as it is there."""
    return int(tensor.untyped_storage()._cdata)
