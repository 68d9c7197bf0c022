"""Layers with statistics that a forward updates: it must not be executed twice, and replicas see different ones."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.fx import GraphModule

from bapipe_executor.cut_finder.in_place import changed_buffers

WITH_STATISTICS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def updates_statistics(module: nn.Module) -> bool:
    """Whether a forward of `module` changes the running statistics of a normalisation in it."""
    return any(True for _ in running_statistics(module, updated=True))


def running_statistics(module: nn.Module, *, updated: bool = False) -> Iterator[Tensor]:
    """Running means and variances in `module`; with `updated` only those that a forward changes.

    A layer that is a graph has no modules any more: there they are all buffers that its operations change.
    """
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from (buffer for buffer in changed_buffers(part) if buffer.is_floating_point())
        elif isinstance(part, WITH_STATISTICS) and not (updated and _is_frozen(part)):
            yield from (
                part.get_buffer(name) for name in ("running_mean", "running_var") if getattr(part, name) is not None
            )


def _is_frozen(part: nn.Module) -> bool:
    return not part.training or getattr(part, "momentum", None) == 0.0
