"""Memory that a layer takes while it runs, beyond what it keeps: the most at once, in its forward or its backward."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from bapipe_executor.profiling.layer_run import LayerRun, differentiable_outputs
from bapipe_executor.profiling.tensors import storages_in, value_bytes


def workspace_bytes(run: LayerRun, device: torch.device) -> int:
    """Bytes on top of parameters, stash and the layer's own input and output, gradients on their way included."""
    return _cuda_workspace(run, device) if device.type == "cuda" else _traced_workspace(run)


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make and that are still referred to. Real and fake tensors alike."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._seen: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and counts what it made anew."""
        made = func(*args, **(kwargs or {}))
        read = storages_in((args, kwargs))
        for key, storage in storages_in(made).items():
            if key not in read and storage not in self._seen:
                self._seen[storage] = True
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return made

    def _add(self, size_bytes: int) -> None:
        self.live += size_bytes
        self.peak = max(self.peak, self.live)


def _traced_workspace(run: LayerRun) -> int:
    with LiveBytes() as memory:
        made = run.forward()
        forward: int = memory.peak - memory.live
    outputs, gradients = differentiable_outputs(made)
    if not outputs:
        return forward
    with memory:
        memory.peak = before = memory.live
        run.backward(outputs, gradients)
        backward: int = memory.peak - before
    return max(forward, backward + value_bytes(gradients))


def _cuda_workspace(run: LayerRun, device: torch.device) -> int:
    """Kernels' own scratch memory, which only the allocator sees, is counted, too."""
    torch.cuda.reset_peak_memory_stats(device)
    made = run.forward()
    torch.cuda.synchronize(device)
    forward = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    outputs, gradients = differentiable_outputs(made)
    if not outputs:
        return forward
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run.backward(outputs, gradients)
    torch.cuda.synchronize(device)
    return max(forward, torch.cuda.max_memory_allocated(device) - before + value_bytes(gradients))
