"""Modules that do the work of a plan in their own way, and not as its orders say."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

REASONS: dict[type, str] = {
    DistributedDataParallel: "with a split backward DDP reduces gradients that are not complete, silently",
    FSDPModule: "its parameters are gathered and freed at moments that the plan's orders do not have",
    nn.SyncBatchNorm: "it waits in every forward for ranks that execute other stages",
}


def wrapper_details(name: str, module: nn.Module) -> Iterator[str]:
    """Why `module`, called `name`, cannot be trained by a plan; nothing if it can."""
    for kind, reason in REASONS.items():
        if any(isinstance(part, kind) for part in module.modules()):
            yield f"{name} has a {kind.__name__}: {reason}; the plan says what is replicated, give plain modules"
