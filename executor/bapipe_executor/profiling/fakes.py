"""Operations and batches without data: every tensor has a shape, a type and a device, and no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from bapipe_executor.batch import Batch
from bapipe_executor.profiling.kernels import GpuKernels, separate_operations


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Operations inside compute nothing, and draw no random numbers.

    They are on the CPU, whose attention keeps what fused attention on a GPU keeps.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.random.fork_rng(devices=[]), mode, separate_operations(), GpuKernels():
        yield


def faked_batch(batch: Batch) -> Batch:
    """The batch without data; call it inside `fake_tensors`."""
    return Batch({name: _fake(tensor) for name, tensor in batch.inputs.items()}, _fake(batch.target))


def _fake(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
