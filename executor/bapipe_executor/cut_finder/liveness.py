"""Which values of an exported graph are worth a layer, which every stage can make for itself, and which cross a cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

aten = torch.ops.aten

_WITH_STATE = {aten.batch_norm.default, aten.instance_norm.default, aten._native_batch_norm_legit.default}
"""Operations that change buffers without saying so in their schema."""


class Liveness:
    """The nodes that layers consist of (`core`, in order), and how many tensors are live before each of them.

    What follows from model inputs and constants alone, such as masks and positions, is made again wherever it is read:
    model inputs are at every stage, so that costs no transfer.
    """

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self.output = next(node for node in module.graph.nodes if node.op == "output")
        self._free: set[Node] = set()
        for node in module.graph.nodes:
            if self._is_free(node):
                self._free.add(node)
        self.core = [node for node in module.graph.nodes if node.op == "call_function" and node not in self._free]
        self.position = {node: place for place, node in enumerate(self.core)}
        self.position[self.output] = len(self.core)
        self.live = self._count_live()

    def is_free(self, node: Node) -> bool:
        """Whether every stage can make the value of a node by itself."""
        return node in self._free

    def last_use(self, node: Node) -> int:
        """The position of the last node of the core, or the output, that reads a value, through free nodes or not."""
        return max((self.position[user] for user in node.users if user in self.position), default=self.position[node])

    def _is_free(self, node: Node) -> bool:
        if node.op == "placeholder":
            return True
        if node.op == "get_attr":
            return not isinstance(attribute(self._module, node), nn.Parameter)
        if node.op != "call_function" or not all(argument in self._free for argument in node.all_input_nodes):
            return False
        return not _has_effects(node.target, self._module, node)

    def _count_live(self) -> list[int | None]:
        """How many tensors a cut before core node p would send; None where no cut can be, at 0 and the end too."""
        count = [0] * (len(self.core) + 1)
        barred = {0, len(self.core)}
        for node in self.core:
            places = range(self.position[node] + 1, self.last_use(node) + 1)
            if not isinstance(node.meta.get("val"), Tensor):
                barred.update(places)
            for place in places:
                count[place] += 1
        return [None if place in barred else live for place, live in enumerate(count)]

    def bar(self, group: Iterable[Node]) -> None:
        """No cut may part these nodes, nor come before all of them were last read."""
        members = [node for node in group if node in self.position]
        if members:
            first = min(self.position[node] for node in members)
            for place in range(first + 1, max(map(self.last_use, members)) + 1):
                self.live[place] = None


def attribute(module: GraphModule, node: Node) -> Any:
    """The parameter, buffer, constant or graph that a `get_attr` node names."""
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def _has_effects(target: Any, module: GraphModule, node: Node) -> bool:
    """Whether an operation draws random numbers, changes something, or holds operations that do."""
    if isinstance(target, torch._ops.OpOverload):
        random = torch.Tag.nondeterministic_seeded in target.tags
        return random or target._schema.is_mutable or target in _WITH_STATE
    inner = [attribute(module, each) for each in node.all_input_nodes if each.op == "get_attr"]
    return any(
        _has_effects(each.target, graph, each)
        for graph in inner
        if isinstance(graph, GraphModule)
        for each in graph.graph.nodes
        if each.op == "call_function"
    )
