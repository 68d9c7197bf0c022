"""What the layers of an exported network are called, after the modules that their nodes belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torch import nn
from torch.fx import Node

from bapipe_executor.cut_finder.segments import module_path


def layer_names(core: Sequence[Node], parts: Sequence[range], model: nn.Module) -> list[tuple[str, str]]:
    """A name, unlike all others, and a kind for every layer.

    The largest module that lies in the layer as a whole, around the module that most of the layer's weights are of. A
    layer that holds no whole module is named by its first operation, after the module that it is in.
    """
    owners: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for place in part:
            for path in _ancestors(module_path(core[place])):
                owners.setdefault(path, set()).add(number)
    taken: Counter[str] = Counter()
    return [_unique(*_named(core[part.start : part.stop], owners, model), taken) for part in parts]


def _named(nodes: Sequence[Node], owners: dict[str, set[int]], model: nn.Module) -> tuple[str, str]:
    main = _main_path(nodes)
    whole = next((path for path in _ancestors(main) if len(owners[path]) == 1), None)
    if whole is not None:
        return whole, type(model.get_submodule(whole)).__name__
    operation = str(nodes[0].target).removeprefix("aten.").partition(".")[0]
    return (f"{main}.{operation}" if main else operation), operation


def _main_path(nodes: Sequence[Node]) -> str:
    """The module that most nodes with weights are of, or without any most nodes."""
    weighted = [node for node in nodes if any(each.op == "get_attr" for each in node.all_input_nodes)]
    return Counter(map(module_path, weighted or nodes)).most_common(1)[0][0]


def _ancestors(path: str) -> Iterator[str]:
    """`h`, `h.0`, `h.0.attn` of `h.0.attn`."""
    parts = path.split(".") if path else []
    yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _unique(name: str, kind: str, taken: Counter[str]) -> tuple[str, str]:
    name = name.replace(":", ".")
    taken[name] += 1
    return (name if taken[name] == 1 else f"{name}_{taken[name]}"), kind
