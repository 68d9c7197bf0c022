"""Operations that change a tensor in place. No cut may part them from what they change, so most are replaced."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from bapipe.errors import Fault, InvalidInputError

aten = torch.ops.aten


WITH_STATE: dict[Any, tuple[int, ...]] = {aten.batch_norm.default: (3, 4), aten.instance_norm.default: (3, 4)}
"""Operations that change buffers without saying so in their schema: the places of those arguments."""


TRAINING, MOMENTUM = 5, 6
"""Places of arguments of those operations: whether statistics are those of the input, and how fast they follow."""


def replace_in_place(module: GraphModule) -> list[list[Node]]:
    """Has operations make new tensors where nothing else sees the change; returns what must not be parted.

    Each list holds nodes whose tensors share memory that some operation changes, and which are read again afterwards,
    or a buffer that is changed.

    Raises:
        InvalidInputError: the network changes one of its inputs.
    """
    aliases = Aliases(module)
    position = {node: index for index, node in enumerate(module.graph.nodes)}
    together = [[buffer] for node in module.graph.nodes for buffer in _silently_changed(module, node)]
    for node in list(module.graph.nodes):
        if not _changed(node):
            continue
        group = aliases.of(node)
        kept = any(member.op == "get_attr" for member in group)
        if not kept and _replaced(node, group, position):
            continue
        inputs = [str(member.target) for member in group if member.op == "placeholder"]
        if inputs:
            detail = f"the network changes its input {inputs[0]!r} in place; have it work on a clone"
            raise InvalidInputError([Fault("in_place", detail, f"/inputs/{inputs[0]}")])
        together.append(group)
    return together


def changed_buffers(module: GraphModule) -> list[torch.Tensor]:
    """The buffers that running a graph writes to, each once."""
    aliases = Aliases(module)
    written: dict[Node, None] = {}
    for node in module.graph.nodes:
        if _keeps_statistics(node):
            written.update(dict.fromkeys(_silently_changed(module, node)))
        seen = (member for each in _changed(node) for member in aliases.of(each))
        written.update(dict.fromkeys(member for member in seen if member.op == "get_attr"))
    found = {id(buffer): buffer for buffer in (attribute(module, node) for node in written)}
    return [buffer for buffer in found.values() if isinstance(buffer, torch.Tensor)]


def _keeps_statistics(node: Node) -> bool:
    """Not of a normalisation that is frozen: in evaluation, or with momentum 0."""
    return node.target not in WITH_STATE or bool(node.args[TRAINING] and node.args[MOMENTUM])


def has_effects(target: Any, module: GraphModule, node: Node) -> bool:
    """Whether an operation draws random numbers, changes something, or holds operations that do."""
    if isinstance(target, torch._ops.OpOverload):
        random = torch.Tag.nondeterministic_seeded in target.tags
        return random or target._schema.is_mutable or target in WITH_STATE
    return any(has_effects(each.target, graph, each) for graph, each in _inside(module, node))


def attribute(module: GraphModule, node: Node) -> Any:
    """The parameter, buffer, constant or graph that a `get_attr` node names."""
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def _silently_changed(module: GraphModule, node: Node) -> list[Node]:
    """The buffers that a node writes to without saying so: all that it reads, where operations inside it write."""
    if node.op != "call_function":
        return []
    changed: list[Any] = [node.args[place] for place in WITH_STATE.get(node.target, ())]
    if any(_changed(each) or each.target in WITH_STATE for _, each in _inside(module, node)):
        changed += node.all_input_nodes
    buffers = [each for each in changed if isinstance(each, Node) and each.op == "get_attr"]
    return [each for each in buffers if isinstance(attribute(module, each), torch.Tensor)]


def _inside(module: GraphModule, node: Node) -> Iterator[tuple[GraphModule, Node]]:
    """The operations of the graphs that a node is given, such as those of a region without gradients."""
    for each in node.all_input_nodes:
        graph = attribute(module, each) if each.op == "get_attr" else None
        if isinstance(graph, GraphModule):
            yield from ((graph, inner) for inner in graph.graph.nodes if inner.op == "call_function")


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
