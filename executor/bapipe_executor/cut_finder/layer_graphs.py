"""Every layer as a graph of its own, over the parameters of the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from bapipe_executor.cut_finder.exported import Exported
from bapipe_executor.cut_finder.in_place import attribute, replace_in_place
from bapipe_executor.cut_finder.liveness import Liveness
from bapipe_executor.cut_finder.names import layer_names
from bapipe_executor.cut_finder.segments import segments
from bapipe_executor.layered_model import LayeredModel


def layered_graph(exported: Exported, model: nn.Module) -> LayeredModel:
    """The layers of a network, `model`, from its graph."""
    module = exported.module
    liveness = Liveness(module, replace_in_place(module))
    parts = segments(liveness)
    names = layer_names(liveness.core, parts, model)
    owner = {liveness.core[place]: number for number, part in enumerate(parts) for place in part}
    cutter = _Cutter(exported, liveness, owner)
    made = [cutter.layer(number, liveness.core[part.start : part.stop]) for number, part in enumerate(parts)]
    sent = [cutter.sent(number) for number in range(len(parts))]
    layers, reads = {}, {}
    for (name, kind), (graph, attributes, sources) in zip(names, made, strict=True):
        layers[name] = GraphModule(attributes, graph, class_name=kind)
        reads[name] = tuple(
            str(source.target) if source.op == "placeholder" else _read(source, owner, sent, names)
            for source in sources
        )
    inputs = tuple(str(node.target) for node in module.graph.nodes if node.op == "placeholder")
    return LayeredModel(layers, reads, inputs=inputs, output=names[-1][0])


class _Cutter:
    """Copies the nodes of a layer, and what it makes again for itself, into a graph of its own."""

    def __init__(self, exported: Exported, liveness: Liveness, owner: Mapping[Node, int]) -> None:
        self._module, self._liveness, self._owner = exported.module, liveness, owner
        self._returns_tuple = exported.returns_tuple
        self._place = {node: place for place, node in enumerate(exported.module.graph.nodes)}
        self._last = max(owner.values(), default=0)

    def sent(self, number: int) -> list[Node]:
        """What layer `number` makes for later layers, in order; the last one makes the output of the network."""
        if number == self._last:
            return []
        mine = [node for node, owner in self._owner.items() if owner == number]
        return [node for node in mine if any(self._reads(user, number) for user in node.users)]

    def _reads(self, user: Node, number: int) -> bool:
        return user is self._liveness.output or self._owner[user] != number

    def layer(self, number: int, nodes: list[Node]) -> tuple[Graph, dict[str, Any], list[Node]]:
        """Its graph, its parameters and buffers by name, and the nodes that its arguments are."""
        ends = [self._liveness.output] if number == self._last else self.sent(number)
        needed = self._needed(nodes, ends)
        sources = [node for node in needed if node.op == "placeholder" or self._is_foreign(node, number)]
        names = _short_names([node for node in needed if node.op == "get_attr"])
        graph = Graph()
        copies = {source: graph.placeholder(f"value{place}") for place, source in enumerate(sources)}
        for node in needed:
            if node not in copies:
                copies[node] = _copied(graph, node, copies, names)
        graph.output(self._made(number, ends, copies))
        attributes = {name: attribute(self._module, node) for node, name in names.items()}
        return graph, attributes, sources

    def _made(self, number: int, ends: list[Node], copies: Mapping[Node, Node]) -> Any:
        """One tensor or a tuple of them; the last layer makes what the network returns."""
        if number != self._last:
            made = tuple(copies[node] for node in ends)
            return made[0] if len(made) == 1 else made
        outputs = tuple(_mapped(ends[0].args[0], copies))
        return outputs if self._returns_tuple else outputs[0]

    def _needed(self, nodes: list[Node], ends: list[Node]) -> list[Node]:
        """The layer's nodes, what they and the ends read, and what that is made from as far as it is free."""
        found: set[Node] = set()
        waiting = [*nodes, *(each for end in ends for each in (end.all_input_nodes if end.op == "output" else [end]))]
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            found.add(node)
            if node in nodes or self._liveness.is_free(node):
                waiting += node.all_input_nodes
        return sorted(found, key=self._place.__getitem__)

    def _is_foreign(self, node: Node, number: int) -> bool:
        return node in self._owner and self._owner[node] != number


def _read(source: Node, owner: Mapping[Node, int], sent: list[list[Node]], names: list[tuple[str, str]]) -> str:
    number = owner[source]
    values, name = sent[number], names[number][0]
    return name if len(values) == 1 else f"{name}:{values.index(source)}"


def _copied(graph: Graph, node: Node, copies: Mapping[Node, Node], names: Mapping[Node, str]) -> Node:
    """A copy that is named by what it does, so that layers that are alike have graphs that are alike."""
    if node.op == "get_attr":
        return graph.get_attr(names[node])
    args, kwargs = (_mapped(part, copies) for part in (node.args, node.kwargs))
    return graph.create_node(node.op, node.target, args, kwargs)


def _mapped(value: Any, copies: Mapping[Node, Node]) -> Any:
    return map_arg(value, lambda node: copies[node])


def _short_names(nodes: list[Node]) -> dict[Node, str]:
    """Names of parameters and buffers without the modules that all of them are in."""
    paths = [str(node.target).split(".") for node in nodes]
    shared = 0
    while paths and all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    return {node: ".".join(path[shared:]) for node, path in zip(nodes, paths, strict=True)}
