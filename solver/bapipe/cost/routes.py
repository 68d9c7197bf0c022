"""Which stages feed which, and with how many bytes of each micro-batch."""

from __future__ import annotations

from collections.abc import Mapping

from bapipe.graph import graph_of
from bapipe.lowering import Route
from bapipe.problem import PlanRequest


def routes_of(request: PlanRequest, stage_of: Mapping[str, int], num_stages: int, microbatch_size: int) -> list[Route]:
    """The routes between stages; `stage_of` tells the stage of each layer id.

    A stage always feeds the next, if with nothing. Relayed, a tensor passes every stage on its way to the last one that
    reads it; sent direct, it goes once to each stage that reads it. Either way it crosses a cut, or reaches a stage,
    once.
    """
    layers = request.profile.layers
    graph = graph_of(request.profile)
    sizes = {(s, s + 1): 0.0 for s in range(num_stages - 1)}
    stages = [stage_of[layers[index].id] for index in graph.layers]
    for tensor in graph.tensors:
        source, readers = stages[tensor.source], sorted({stages[reader] for reader in tensor.consumers})
        if request.cluster.skip_tensors == "relay":
            ways = [(s, s + 1) for s in range(source, readers[-1])] if readers else []
        else:
            ways = [(source, reader) for reader in readers if reader > source]
        for way in ways:
            sizes[way] = sizes.get(way, 0.0) + tensor.bytes_per_sample * microbatch_size
    return [Route(source, target, size) for (source, target), size in sorted(sizes.items())]
