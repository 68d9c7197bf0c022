"""What autograd keeps between a layer's forward and its backward, by the layer that made it.

A tensor counts once, however many layers need it again, and for the layer that made it: what a stage receives from the
stage before counts as received. Parameters, buffers and the model's inputs are there for the whole step, and do not
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, UntypedStorage
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.weak import WeakIdKeyDictionary

from bapipe_executor.profiling.tensors import storages_in


class Stash:
    """Bytes kept, by layer, of layers whose forwards are recorded in topological order."""

    def __init__(self, lasting: Iterable[Tensor]) -> None:
        self.bytes_by_layer: Counter[str] = Counter()
        self._makers: Any = WeakIdKeyDictionary()
        self._counted: Any = WeakIdKeyDictionary()
        for storage in storages_in(list(lasting)).values():
            self._counted[storage] = True

    @contextmanager
    def recording(self, layer: str) -> Iterator[list[Any]]:
        """What autograd keeps inside belongs to `layer`; append to the list what the layer makes."""
        saved: dict[int, UntypedStorage] = {}
        made: list[Any] = []

        def pack(tensor: Tensor) -> Tensor:
            saved.update(storages_in(tensor))
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            yield made
        for storage in storages_in(made).values():
            self._makers.setdefault(storage, layer)
        for storage in saved.values():
            self._count(storage, layer)

    def _count(self, storage: UntypedStorage, layer: str) -> None:
        if storage not in self._counted:
            self._counted[storage] = True
            self.bytes_by_layer[self._makers.get(storage, layer)] += storage.nbytes()
