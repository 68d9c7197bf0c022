"""A network in place of the one that a plan is for: the same layers and edges, a number a sample between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import torch
from torch import Tensor, nn

from bapipe.graph import graph_of
from bapipe.plan import Plan
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel

INPUT = "samples"


class _Layer(nn.Module):
    """The mean of what it reads, times its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, *read: Tensor) -> Tensor:
        return torch.stack(read).mean(0) * self.weight


def network(plan: Plan) -> LayeredModel:
    """The layers of the plan. The last of its last stage reads all that nobody else does."""
    profile = plan.request.profile
    graph = graph_of(profile)
    in_order = [profile.layers[index].id for index in graph.layers]
    last = [name for name in in_order if name in plan.stages[-1].layers][-1]
    names = [*(name for name in in_order if name != last), last]
    reads: dict[str, list[str]] = {name: [] for name in names}
    for tensor in graph.tensors:
        for reader in tensor.consumers:
            reads[in_order[reader]].append(in_order[tensor.source])
    read = {source for sources in reads.values() for source in sources}
    reads[last] += [name for name in names if name not in read and name != last]
    return LayeredModel({name: _Layer() for name in names}, {n: r or [INPUT] for n, r in reads.items()}, [INPUT], last)


def batches(plan: Plan) -> Iterator[Batch]:
    """Always the same mini-batch."""
    ones = torch.ones(plan.request.batch_size, 1)
    return repeat(Batch({INPUT: ones}, ones))


def loss() -> nn.Module:
    """Any loss will do."""
    return nn.MSELoss()
