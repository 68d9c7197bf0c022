"""Where the nodes of a network are cut into layers.

Cuts lie where one module ends and another begins, first wherever a single tensor is live. What is still large, such as
the inside of a network with skips, is cut where the fewest tensors are live, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from bapipe_executor.cut_finder.liveness import Liveness

LARGE = 1 / 32
"""A share of the network's operations from which on a layer is cut further, through several tensors."""

aten = torch.ops.aten
_PRODUCTS = {aten.matmul.default, aten.bmm.default, aten.mm.default, aten.scaled_dot_product_attention.default}


def segments(liveness: Liveness) -> list[range]:
    """The positions in `liveness.core` of every layer's nodes, in order."""
    costs = [_cost(node) for node in liveness.core]
    places = [
        place
        for place in range(1, len(costs))
        if liveness.live[place] is not None
        and module_path(liveness.core[place - 1]) != module_path(liveness.core[place])
    ]
    cuts = sorted(_cuts(range(len(costs)), places, liveness, costs))
    return [range(start, stop) for start, stop in pairwise([0, *cuts, len(costs)])]


def module_path(node: Node) -> str:
    """The name of the innermost module that a node belongs to; empty for the network itself."""
    stack: Any = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return str(paths[-1]) if paths else ""


def _cuts(part: range, places: list[int], liveness: Liveness, costs: list[float]) -> Iterator[int]:
    inside = [place for place in places if part.start < place < part.stop]
    least = min((liveness.live[place] or 0 for place in inside), default=0)
    if not inside or (least > 1 and sum(costs[part.start : part.stop]) < LARGE * sum(costs)):
        return
    chosen = [place for place in inside if (liveness.live[place] or 0) == least]
    yield from chosen
    for start, stop in pairwise([part.start, *chosen, part.stop]):
        yield from _cuts(range(start, stop), inside, liveness, costs)


def _cost(node: Node) -> float:
    """Operations of a node for two samples, roughly: out times inner dimension for products, else elements made."""
    made = _elements(node)
    if node.target in _PRODUCTS:
        return made * _size(_values(node)[0].shape[-1])
    parameters = [each for each in node.all_input_nodes if each.op == "get_attr"]
    matrices = [each.meta["val"] for each in parameters if isinstance(each.meta.get("val"), Tensor)]
    inner = sum(prod(matrix.shape[1:]) for matrix in matrices if matrix.dim() > 1)
    is_lookup = node.target is aten.embedding.default
    return made * (1.0 if is_lookup else max(1.0, float(inner)))


def _values(node: Node) -> list[Tensor]:
    return [value for each in node.all_input_nodes if isinstance(value := each.meta.get("val"), Tensor)]


def _elements(node: Node) -> float:
    value = node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else [value]
    return float(sum(prod(map(_size, each.shape)) for each in tensors if isinstance(each, Tensor)))


def _size(dimension: Any) -> int:
    return dimension if isinstance(dimension, int) else int(dimension.node.hint or 1)
