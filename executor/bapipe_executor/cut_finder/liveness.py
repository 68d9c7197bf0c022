"""Which values of an exported graph are worth a layer, which every stage can make for itself, and which cross a cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn
from torch.fx import GraphModule, Node

from bapipe_executor.cut_finder.in_place import attribute, has_effects


class Liveness:
    """The nodes that layers consist of (`core`, in order), and how many tensors are live before each of them.

    What follows from model inputs and constants alone, such as masks and positions, is made again wherever it is read:
    model inputs are at every stage, so that costs no transfer. `together`: lists of nodes that no cut may part.
    """

    def __init__(self, module: GraphModule, together: Sequence[Sequence[Node]]) -> None:
        self._module = module
        self._changed = {node for group in together for node in group if node.op == "get_attr"}
        self.output = next(node for node in module.graph.nodes if node.op == "output")
        self._free: set[Node] = set()
        for node in module.graph.nodes:
            if self._is_free(node):
                self._free.add(node)
        self.core = [node for node in module.graph.nodes if node.op == "call_function" and node not in self._free]
        self.position = {node: place for place, node in enumerate(self.core)}
        self.position[self.output] = len(self.core)
        self.live = self._count_live()
        for group in together:
            self._bar(group)

    def is_free(self, node: Node) -> bool:
        """Whether every stage can make the value of a node by itself."""
        return node in self._free

    def last_use(self, node: Node) -> int:
        """The position of the last node of the core, or the output, that reads a value; of the node if none does."""
        return max((self.position[user] for user in node.users if user in self.position), default=self.position[node])

    def _is_free(self, node: Node) -> bool:
        if node.op == "placeholder":
            return True
        if node.op == "get_attr":
            return node not in self._changed and not isinstance(attribute(self._module, node), nn.Parameter)
        if node.op != "call_function" or not all(argument in self._free for argument in node.all_input_nodes):
            return False
        return not has_effects(node.target, self._module, node)

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

    def _bar(self, group: Iterable[Node]) -> None:
        """No cut may part these nodes and what uses them, or what reads the buffers among them."""
        places: set[int] = set()
        for node in group:
            if node in self.position:
                places |= {self.position[node], self.last_use(node)}
            else:
                places |= {self.position[user] for user in node.users if user in self.position}
        for place in range(min(places, default=0) + 1, max(places, default=0) + 1):
            self.live[place] = None
