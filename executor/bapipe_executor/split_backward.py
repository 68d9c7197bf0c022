"""A backward in two halves: first the gradients of a stage's inputs, which another stage waits for, later its weights'.

Nodes of the autograd graph from which an input of the stage can be reached are *on the way*; the first half runs them
all. Where the way passes a node that uses a parameter, the gradient that arrives there is kept, and the second half
starts from it: it computes just the gradient of that parameter. Parameters that the way does not touch, such as those
of an embedding that reads an input of the model, are left to the second half altogether. One that is used at
several places, such as the weights of a recurrent layer, has its gradient in the first half: starting at each of those
places would run the ways between them again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Gradients = tuple[Tensor | None, ...]


class SplitBackward:
    """The backward of one micro-batch: `input_gradients` once, then `weight_gradients` once.

    `outputs` are what the stage made, `inputs` what it received. `gradients` are those of the outputs, None for one
    that has none; None altogether for the loss. `anchors` are leaves without a gradient of their own, for the sake of
    whose readers a backward is run: in the second half, unless they are on the way.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        gradients: Sequence[Tensor | None] | None,
        inputs: Sequence[Tensor],
        parameters: Iterable[nn.Parameter],
        anchors: Iterable[Tensor] = (),
    ) -> None:
        given = [torch.ones_like(output) for output in outputs] if gradients is None else gradients
        kept = [(o, g) for o, g in zip(outputs, given, strict=True) if o.requires_grad and g is not None]
        self._roots = [get_gradient_edge(output) for output, _ in kept]
        self._root_gradients = [gradient for _, gradient in kept]
        self._inputs = list(inputs)
        self._now: list[Tensor] = []
        self._rest: list[Tensor] = []
        self._later: dict[Node, list[Tensor]] = defaultdict(list)
        self._arrived: dict[Node, Gradients] = {}
        self._sort([parameter for parameter in parameters if parameter.requires_grad], list(anchors))

    def input_gradients(self) -> Gradients:
        """The gradient of each input, None where it has none."""
        wanted = [tensor for tensor in self._inputs if tensor.requires_grad]
        hooks = [node.register_prehook(partial(self._keep, node)) for node in self._later]
        try:
            found = self._grad(self._roots, self._root_gradients, [*wanted, *self._now], retain_graph=True)
        finally:
            for hook in hooks:
                hook.remove()
        _accumulate(self._now, found[len(wanted) :])
        gradients = iter(found[: len(wanted)])
        result = tuple(next(gradients) if tensor.requires_grad else None for tensor in self._inputs)
        self._inputs = []
        return result

    def weight_gradients(self) -> None:
        """Adds the other gradients to the parameters, and frees the graph."""
        if self._rest:
            _accumulate(self._rest, self._grad(self._roots, self._root_gradients, self._rest, retain_graph=False))
        self._roots, self._root_gradients = [], []
        while self._later:
            node, parameters = self._later.popitem()
            arrived = [(k, g) for k, g in enumerate(self._arrived.pop(node, ())) if g is not None]
            edges = [GradientEdge(node, number) for number, _ in arrived]
            _accumulate(parameters, self._grad(edges, [g for _, g in arrived], parameters, retain_graph=False))

    def _keep(self, node: Node, gradients: Gradients) -> None:
        self._arrived[node] = gradients

    @staticmethod
    def _grad(
        edges: Sequence[GradientEdge], gradients: Sequence[Tensor], inputs: Sequence[Tensor], *, retain_graph: bool
    ) -> Gradients:
        if not edges or not inputs:
            return (None,) * len(inputs)
        return torch.autograd.grad(edges, inputs, gradients, retain_graph=retain_graph, allow_unused=True)

    def _sort(self, parameters: Sequence[Tensor], anchors: Sequence[Tensor]) -> None:
        """When each parameter has its turn."""
        roots = {edge.node for edge in self._roots}
        readers = _readers(roots)
        targets = [get_gradient_edge(tensor).node for tensor in self._inputs if tensor.requires_grad]
        on_the_way = _reached(targets, readers)
        for parameter in parameters:
            met, passed = _met_and_passed(get_gradient_edge(parameter).node, on_the_way, readers)
            if not met:
                self._rest.append(parameter)
            elif len(met) == 1 and passed.isdisjoint(roots):
                self._later[met.pop()].append(parameter)
            else:
                self._now.append(parameter)
        for anchor in anchors:
            if not _met_and_passed(get_gradient_edge(anchor).node, on_the_way, readers)[0]:
                self._rest.append(anchor)


Readers = dict[Node, list[Node]]
"""For each node those that pass it a gradient."""


def _readers(roots: Iterable[Node]) -> Readers:
    """Over all nodes that can be reached from `roots`."""
    found: Readers = defaultdict(list)
    waiting = deque(dict.fromkeys(roots))
    seen = set(waiting)
    while waiting:
        node = waiting.popleft()
        for following, _ in node.next_functions:
            if following is not None:
                found[following].append(node)
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
    return found


def _reached(starts: Iterable[Node], readers: Readers) -> set[Node]:
    """All nodes from which one of `starts` gets a gradient, with `starts` themselves."""
    waiting = deque(dict.fromkeys(starts))
    seen = set(waiting)
    while waiting:
        for node in readers.get(waiting.popleft(), ()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen


def _met_and_passed(start: Node, on_the_way: set[Node], readers: Readers) -> tuple[set[Node], set[Node]]:
    """The nodes on the way from which `start` gets a gradient without passing another, and those beside it."""
    waiting, passed, met = deque([start]), {start}, set[Node]()
    while waiting:
        for node in readers.get(waiting.popleft(), ()):
            if node in on_the_way:
                met.add(node)
            elif node not in passed:
                passed.add(node)
                waiting.append(node)
    return met, passed


def _accumulate(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Adds to the gradients; the first is copied, for two parameters may have been given one tensor."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is None:
            parameter.grad = gradient.clone()
        else:
            parameter.grad += gradient
