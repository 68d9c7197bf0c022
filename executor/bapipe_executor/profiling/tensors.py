"""Tensors inside whatever a layer reads or makes, their storages, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils._pytree import tree_iter, tree_map


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested tuples, lists and dictionaries, in order."""
    return (leaf for leaf in tree_iter(value) if isinstance(leaf, Tensor))


def storages_in(value: Any) -> dict[int, UntypedStorage]:
    """The storages of those tensors by their identity, which holds while the storage is referred to."""
    found = (tensor.untyped_storage() for tensor in tensors_in(value))
    return {id(storage): storage for storage in found}


def tensor_bytes(tensor: Tensor) -> int:
    """The bytes of its elements, or of its storage where it repeats them (`expand`)."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def value_bytes(value: Any) -> int:
    """The bytes of all tensors in a value, as they are sent: every element once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def is_differentiable(tensor: Tensor) -> bool:
    """Whether a tensor of this type can have a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()


def detached(value: Any) -> Any:
    """The same tensors without what made them; those that have a gradient are asked for it again."""
    return tree_map(_leaf, value)


def _leaf(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    with torch.no_grad():
        return value.detach().requires_grad_(value.requires_grad)
