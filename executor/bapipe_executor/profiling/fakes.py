"""Networks and batches without data: every tensor has a shape, a type and a device, and no memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bapipe_executor.batch import Batch
from bapipe_executor.profiling.kernels import GpuKernels, separate_operations

M = TypeVar("M")


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Operations inside compute nothing, and draw no random numbers.

    They are on the CPU, whose attention keeps what fused attention on a GPU keeps.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.random.fork_rng(devices=[]), mode, separate_operations(), GpuKernels():
        yield


def faked(module: M) -> M:
    """A copy of the module with parameters and buffers without data; call it inside `fake_tensors`."""
    if not isinstance(module, nn.Module):
        return module
    memo: dict[int, object] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        fake = _fake(tensor)
        memo[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake
    return copy.deepcopy(module, memo)


def faked_batch(batch: Batch) -> Batch:
    """The batch without data; call it inside `fake_tensors`."""
    return Batch({name: _fake(tensor) for name, tensor in batch.inputs.items()}, _fake(batch.target))


def _fake(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
