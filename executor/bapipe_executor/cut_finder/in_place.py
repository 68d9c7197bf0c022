"""Operations that change a tensor in place. No cut may part them from what they change, so most are replaced."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node


def replace_in_place(module: GraphModule) -> list[list[Node]]:
    """Has operations make new tensors where nothing else sees the change; returns what must not be parted.

    Each list holds nodes whose tensors share memory that some operation changes, and which are read again afterwards.
    """
    aliases = Aliases(module)
    position = {node: index for index, node in enumerate(module.graph.nodes)}
    tied = []
    for node in list(module.graph.nodes):
        changed = [argument for argument in _changed(node) if argument.op != "get_attr"]
        if not changed:
            continue
        group = aliases.of(node)
        if _replaced(node, group, position):
            continue
        tied.append(group)
    return tied


class Aliases:
    """Nodes by the memory that their tensors share, as the schemas of the operations say."""

    def __init__(self, module: GraphModule) -> None:
        self._groups: dict[Node, list[Node]] = {}
        for node in module.graph.nodes:
            self._groups[node] = [node]
            for source in _shared(node):
                self._join(node, source)

    def of(self, node: Node) -> list[Node]:
        """All nodes that share memory with this one, itself included."""
        return self._groups[node]

    def _join(self, node: Node, source: Node) -> None:
        one, other = self._groups[node], self._groups[source]
        if one is not other:
            other.extend(one)
            for member in one:
                self._groups[member] = other


def _shared(node: Node) -> Iterator[Node]:
    """The arguments of which a node returns memory."""
    if node.target is operator.getitem:
        yield from node.all_input_nodes[:1]
    elif isinstance(node.target, torch._ops.OpOverload) and any(
        each.alias_info for each in node.target._schema.returns
    ):
        yield from _arguments(node, lambda argument: argument.alias_info is not None)


def _changed(node: Node) -> list[Node]:
    """The arguments that a node writes to."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    return list(_arguments(node, lambda argument: argument.alias_info is not None and argument.alias_info.is_write))


def _arguments(node: Node, wanted: Any) -> Iterator[Node]:
    schema: Any = node.target._schema  # type: ignore[union-attr]
    for place, argument in enumerate(schema.arguments):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(given, Node) and wanted(argument):
            yield given


def _replaced(node: Node, group: list[Node], position: dict[Node, int]) -> bool:
    """Whether `relu_` could become `relu`: what shared the memory before is not read afterwards."""
    before = [member for member in group if position[member] < position[node]]
    if any(position[user] > position[node] for member in before for user in member.users):
        return False
    overload: Any = node.target
    packet = getattr(torch.ops.aten, overload._schema.name.partition("::")[2].removesuffix("_"), None)
    replacement = getattr(packet, overload._overloadname, None)
    if replacement is None or replacement is overload or replacement._schema.is_mutable:
        return False
    node.target = replacement
    return True
