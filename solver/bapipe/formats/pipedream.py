"""A PipeDream `graph.txt` as a profile.

Nodes become layers under their own ids, the smallest node number first, so that the layer index breaks ties of the
topological order as the number would. Times are of device kind `reference` at the profiled mini-batch, which the file
does not state.

Source nodes named `Input` stand for data loading, and `__getitem__` nodes that nothing reads for outputs that are
thrown away: both are left out. A node with several outputs writes one tensor for each, and `__getitem__(k)` passes on
the k-th: it is a view, so the tensor is neither sent twice over a cut nor kept twice for the backward.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from pydantic import ValidationError

from bapipe.cost.compute import REFERENCE, proportional_times
from bapipe.errors import Fault, FormatError, InvalidInputError
from bapipe.faults import MAX_COUNT, faults_of
from bapipe.formats.pipedream_lines import MS_PER_S, Arrow, Lines, Node, at_line, line_of, read_lines
from bapipe.problem import Edge, Layer, LayerTime, ModelProfile

MAX_KIND_LENGTH = 1000

_GET_ITEM = re.compile(r"__getitem__\((\d+)\)")
_NUMBER_IN_ID = re.compile(r"(\d+)$")


def looks_like_pipedream(text: str) -> bool:
    """Whether `text` has the field that every node line of a `graph.txt` has, after the separator."""
    return " -- " in text and "forward_compute_time" in text


def read_pipedream(text: str, profile_batch: int, name: str) -> ModelProfile:
    """The profile in `text`, the content of a `graph.txt`; `profile_batch` is the mini-batch it was measured with.

    Raises:
        FormatError: with every malformed line (`/lines/N`), dangling or repeated edge, and cycle.
        InvalidInputError: `profile_batch` is no positive count.
    """
    _check_batch(profile_batch)
    lines = read_lines(text)
    faults = [*lines.faults, *_graph_faults(lines)]
    if not lines.names and not faults:
        faults.append(Fault("no_layers", "the file has no node line"))
    if faults:
        raise FormatError(sorted(faults, key=line_of))
    dropped = _left_out(lines)
    nodes = {node.id: node for node in _by_number(lines) if node.id not in dropped}
    if not nodes:
        raise FormatError([Fault("no_layers", "nothing is left without Input nodes and unread __getitem__ nodes")])
    arrows = _kept_arrows(lines, nodes)
    views = _views(nodes, arrows)
    try:
        return ModelProfile(
            name=name,
            layers=tuple(_layer(node, profile_batch, node.id in views) for node in nodes.values()),
            edges=tuple(dict.fromkeys(_edges(nodes, arrows, views, profile_batch))),
            source=f"PipeDream graph.txt, profiled with a mini-batch of {profile_batch}",
            warnings=tuple(_warnings(lines, dropped, profile_batch)),
        )
    except ValidationError as error:
        raise FormatError(faults_of(error)) from None


def _check_batch(profile_batch: int) -> None:
    if isinstance(profile_batch, bool) or not isinstance(profile_batch, int):
        detail = f"profile_batch is a whole number of samples, not {profile_batch!r}"
        raise InvalidInputError([Fault("wrong_type", detail, "/profile_batch")])
    if not 1 <= profile_batch <= MAX_COUNT:
        code = "too_small" if profile_batch < 1 else "too_large"
        detail = f"profile_batch is between 1 and {MAX_COUNT}, not {profile_batch}"
        raise InvalidInputError([Fault(code, detail, "/profile_batch")])


def _graph_faults(lines: Lines) -> Iterator[Fault]:
    """Dangling edges, edges from a node to itself, a cycle, and items of outputs that do not exist."""
    graph: dict[str, set[str]] = {name: set() for name in lines.names}
    numbers: dict[tuple[str, str], int] = {}
    for arrow in lines.arrows:
        ends = (arrow.source, arrow.target)
        for end in ends:
            if end not in lines.names:
                yield Fault("dangling_reference", f"there is no node {end!r}", at_line(arrow.line))
        if arrow.source == arrow.target:
            yield Fault("cycle", f"node {arrow.source!r} reads itself; a profile is acyclic", at_line(arrow.line))
        elif arrow.source in graph and arrow.target in graph:
            graph[arrow.target].add(arrow.source)
            numbers[ends] = arrow.line
        yield from _item_faults(lines, arrow)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = error.args[1]
        detail = f"the nodes form a cycle: {' -> '.join(path)}; a profile is acyclic"
        yield Fault("cycle", detail, at_line(numbers[path[0], path[1]]))


def _item_faults(lines: Lines, arrow: Arrow) -> Iterator[Fault]:
    source, target = lines.nodes.get(arrow.source), lines.nodes.get(arrow.target)
    item = None if target is None else _item(target)
    if source is not None and source.has_list and item is not None and item >= len(source.outputs_bytes):
        count = len(source.outputs_bytes)
        detail = f"node {arrow.target!r} takes output {item} of {source.id!r}, which lists {count} (from 0)"
        yield Fault("dangling_reference", detail, at_line(arrow.line))


def _left_out(lines: Lines) -> set[str]:
    """Ids of Input sources, and of `__getitem__` nodes that nothing reads (again once those are gone)."""
    readers: dict[str, set[str]] = defaultdict(set)
    sources: dict[str, set[str]] = defaultdict(set)
    for arrow in lines.arrows:
        readers[arrow.source].add(arrow.target)
        sources[arrow.target].add(arrow.source)
    nodes = _by_number(lines)
    dropped = {node.id for node in nodes if node.description.startswith("Input") and not sources[node.id]}
    unread = [node.id for node in nodes if _is_get_item(node) and not readers[node.id]]
    while unread:
        name = unread.pop()
        dropped.add(name)
        for source in sources[name]:
            readers[source].discard(name)
            if not readers[source] and _is_get_item(lines.nodes[source]):
                unread.append(source)
    return dropped


def _kept_arrows(lines: Lines, nodes: dict[str, Node]) -> list[Arrow]:
    """The edges between `nodes`, in the order of their ends, whatever the order of the lines."""
    place = {name: index for index, name in enumerate(nodes)}
    kept = [arrow for arrow in lines.arrows if arrow.source in nodes and arrow.target in nodes]
    return sorted(kept, key=lambda arrow: (place[arrow.source], place[arrow.target]))


def _by_number(lines: Lines) -> list[Node]:
    """The nodes by the number that ends their id; those without one last, by name."""

    def key(node: Node) -> tuple[bool, int, str]:
        number = _NUMBER_IN_ID.search(node.id)
        return number is None, int(number[1]) if number else 0, node.id

    return sorted(lines.nodes.values(), key=key)


def _is_get_item(node: Node) -> bool:
    return node.description.startswith("__getitem__")


def _item(node: Node) -> int | None:
    match = _GET_ITEM.fullmatch(node.description)
    return int(match[1]) if match else None


def _views(nodes: dict[str, Node], arrows: list[Arrow]) -> dict[str, tuple[str, int]]:
    """Of each `__getitem__` node that reads one output of a list, and nothing else: that list's node, which output."""
    inputs = Counter(arrow.target for arrow in arrows)
    return {
        arrow.target: (arrow.source, item)
        for arrow in arrows
        if inputs[arrow.target] == 1
        and nodes[arrow.source].has_list
        and (item := _item(nodes[arrow.target])) is not None
    }


def _layer(node: Node, batch: int, is_view: bool) -> Layer:
    output = sum(node.outputs_bytes) / batch
    time = LayerTime(device_kind=REFERENCE, microbatch_size=batch, forward_s=node.forward_s, backward_s=node.backward_s)
    return Layer(
        id=node.id,
        kind=node.description[:MAX_KIND_LENGTH],
        times=(time,),
        parameter_bytes=round(node.parameter_bytes),
        output_bytes_per_sample=output,
        stash_bytes_per_sample=0.0 if is_view else output,
    )


def _edges(
    nodes: dict[str, Node], arrows: list[Arrow], views: dict[str, tuple[str, int]], batch: int
) -> Iterator[Edge]:
    """The file's edges; each output of a list is a tensor of its own.

    Where only one `__getitem__` node reads an output, the file's two edges say it all: the source's output reaches the
    view, and the view's own output goes on. Where several nodes read it, the readers of its views read it at the source
    instead, so that a cut is charged for it once, and the edge from the view carries nothing.
    """
    shared = _shared_outputs(nodes, arrows, views)
    for arrow in arrows:
        source, view = nodes[arrow.source], views.get(arrow.source)
        if view is not None and view in shared:
            yield Edge(source=arrow.source, target=arrow.target, bytes_per_sample=0.0)
            yield _output_edge(nodes[view[0]], arrow.target, view[1], batch)
        elif not source.has_list:
            yield Edge(source=arrow.source, target=arrow.target)
        elif arrow.target in views:
            yield _output_edge(source, arrow.target, views[arrow.target][1], batch)
        else:
            for item in range(len(source.outputs_bytes)):
                yield _output_edge(source, arrow.target, item, batch)


def _shared_outputs(
    nodes: dict[str, Node], arrows: list[Arrow], views: dict[str, tuple[str, int]]
) -> set[tuple[str, int]]:
    """The outputs, as (node, item), of which several nodes read the same."""
    count: dict[tuple[str, int], int] = defaultdict(int)
    for arrow in arrows:
        outputs = nodes[arrow.source].outputs_bytes if nodes[arrow.source].has_list else ()
        wanted = [views[arrow.target][1]] if arrow.target in views else range(len(outputs))
        for item in wanted if outputs else ():
            count[arrow.source, item] += 1
    return {output for output, readers in count.items() if readers > 1}


def _output_edge(source: Node, target: str, item: int, batch: int) -> Edge:
    size = source.outputs_bytes[item] / batch
    return Edge(source=source.id, target=target, bytes_per_sample=size, tensor=f"output {item}")


def _warnings(lines: Lines, dropped: set[str], batch: int) -> Iterator[str]:
    for node in _by_number(lines):
        if node.id not in dropped:
            continue
        seconds = node.forward_s + node.backward_s
        if seconds or node.parameter_bytes:
            what = f"{seconds * MS_PER_S:g} ms and {node.parameter_bytes:g} parameter bytes"
            yield f"{node.id} ({node.description}) is left out with its {what}: it is no layer of the network"
    yield proportional_times(batch)
    yield "what a layer keeps for its backward is not in the file: its output bytes are taken"
    if any(node.has_stage for node in lines.nodes.values()):
        yield "the stages that the file assigns (stage_id) are ignored"
    for node in lines.nodes.values():
        if len(node.description) > MAX_KIND_LENGTH:
            yield f"the description of {node.id} is cut to {MAX_KIND_LENGTH} characters"
