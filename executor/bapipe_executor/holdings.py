"""What several ranks hold alike: the replicas of a stage, and the stages that share a tied parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch.distributed as dist
from torch import Tensor, nn

from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.normalisation import running_statistics
from bapipe_executor.placement import Placement

Owners = tuple[int, ...]
"""Ranks that hold a copy of something, in ascending order."""


@dataclass
class Holding:
    """What this rank and the other `ranks` hold alike, in an order that all of them share.

    `statistics` are running means and variances, each with the share of the micro-batches that this rank's has seen.
    `group` is None where no other rank holds it.
    """

    ranks: Owners
    group: dist.ProcessGroup | None = None
    parameters: list[nn.Parameter] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    statistics: list[tuple[Tensor, float]] = field(default_factory=list)


def holdings_of(
    model: LayeredModel, stages: Sequence[Sequence[str]], placement: Placement, num_microbatches: int, rank: int
) -> list[Holding]:
    """What `rank` holds, by who else does. Makes process groups: every rank must call it."""
    owned = _owned(model, stages, placement)
    holdings = {ranks: Holding(ranks) for ranks in sorted({ranks for _, ranks in owned.values()})}
    for ranks, holding in holdings.items():
        if len(ranks) > 1:
            holding.group = dist.new_group(list(ranks))
    for tensor, ranks in owned.values():
        if isinstance(tensor, nn.Parameter):
            holdings[ranks].parameters.append(tensor)
        else:
            holdings[ranks].buffers.append(tensor)
    for stage in placement.stages_of(rank):
        share = len(placement.microbatches_of(rank, stage, num_microbatches)) / num_microbatches
        for statistic in _statistics(model, stages[stage]):
            holdings[owned[id(statistic)][1]].statistics.append((statistic, share))
    return [holding for ranks, holding in holdings.items() if rank in ranks]


def synchronise(holdings: Sequence[Holding]) -> None:
    """Gives all ranks the parameters and buffers of the first that holds them."""
    for holding in holdings:
        if holding.group is not None:
            for tensor in (*holding.parameters, *holding.buffers):
                dist.broadcast(tensor.detach(), src=holding.ranks[0], group=holding.group)


def average_statistics(holdings: Sequence[Holding]) -> None:
    """Running statistics of replicas, which see different micro-batches, become their mean by micro-batches."""
    for holding in holdings:
        if holding.group is not None:
            for tensor, share in holding.statistics:
                tensor.mul_(share)
                dist.all_reduce(tensor, group=holding.group)


def _owned(
    model: LayeredModel, stages: Sequence[Sequence[str]], placement: Placement
) -> dict[int, tuple[Tensor, Owners]]:
    """Each parameter and buffer with the ranks that hold it, by identity, in the order of the model."""
    ranks_of = {layer: ranks for layers, ranks in zip(stages, placement.stage_ranks, strict=True) for layer in layers}
    tensors: dict[int, Tensor] = {}
    owners: dict[int, set[int]] = {}
    for layer in model.names:
        module = model.layer(layer)
        for tensor in (*module.parameters(), *module.buffers()):
            tensors[id(tensor)] = tensor
            owners.setdefault(id(tensor), set()).update(ranks_of[layer])
    return {key: (tensor, tuple(sorted(owners[key]))) for key, tensor in tensors.items()}


def _statistics(model: LayeredModel, layers: Sequence[str]) -> Iterator[Tensor]:
    for name in model.names:
        if name in layers:
            yield from running_statistics(model.layer(name))
