"""The lines of a PipeDream `graph.txt` as nodes and edges, with every malformed line reported.

    node10 -- Conv2d(...) -- forward_compute_time=4.423, backward_compute_time=7.197, activation_size=[6.0; 4.0], ...
    <tab>node10 -- node11

Four fields a node: two times in ms, the bytes of its output or of each of its outputs, and the bytes of its parameters,
all for the whole profiled mini-batch. ` -- stage_id=N` may follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bapipe.errors import Fault
from bapipe.faults import MAX_BYTES, MAX_SECONDS

MS_PER_S = 1000.0
TIMES = ("forward_compute_time", "backward_compute_time")
SIZES = ("activation_size", "parameter_size")
MAX_ID_LENGTH = 200
MAX_FAULTS = 1000
MAX_FIELDS = 16

_FIELD = re.compile(r"\s*(\w+)\s*=([^,\[\]]*(?:\[[^\]]*\]\s*)?)(?:,|$)")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_STAGE = re.compile(r"stage_id=\d+")


@dataclass(frozen=True)
class Node:
    """A node line. `outputs_bytes` holds one entry an output; `has_list` says that the file gave a list."""

    id: str
    description: str
    forward_s: float
    backward_s: float
    outputs_bytes: tuple[float, ...]
    has_list: bool
    parameter_bytes: float
    has_stage: bool
    line: int


@dataclass(frozen=True)
class Arrow:
    """An edge line: `target` reads what `source` wrote."""

    source: str
    target: str
    line: int


@dataclass
class Lines:
    """What the lines of a file say. `names` holds the id of every node line, readable or not."""

    nodes: dict[str, Node] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def read_lines(text: str) -> Lines:
    """Every node and edge of `text`, and a fault for each line that is neither or that repeats another.

    Reading stops after `MAX_FAULTS` faults, and a last fault says so.
    """
    lines = Lines()
    seen: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if line[0].isspace():
            _read_edge(lines, seen, line, number)
        else:
            _read_node(lines, line.strip(), number)
        if len(lines.faults) >= MAX_FAULTS:
            detail = f"reading stopped here, after {len(lines.faults)} faults"
            lines.faults.append(Fault("too_many_faults", detail, at_line(number)))
            break
    return lines


def at_line(number: int) -> str:
    """The pointer to line `number` (the first line is 1)."""
    return f"/lines/{number}"


def line_of(fault: Fault) -> int:
    """The line that `fault` points to; 0 when it is about the whole file."""
    number = fault.pointer.removeprefix("/lines/")
    return int(number) if number.isdigit() else 0


def _read_edge(lines: Lines, seen: dict[tuple[str, str], int], line: str, number: int) -> None:
    ends = [part.strip() for part in line.strip().split(" -- ")]
    if len(ends) != 2 or not all(ends):
        detail = f"an edge line is '<tab>source -- target', not {_shown(line)}"
        lines.faults.append(Fault("unparsable_line", detail, at_line(number)))
        return
    key = (ends[0], ends[1])
    if key in seen:
        detail = f"the edge {ends[0]!r} -> {ends[1]!r} was already given on line {seen[key]}"
        lines.faults.append(Fault("duplicate_edge", detail, at_line(number)))
        return
    seen[key] = number
    lines.arrows.append(Arrow(ends[0], ends[1], number))


def _read_node(lines: Lines, line: str, number: int) -> None:
    parts = [part.strip() for part in line.split(" -- ")]
    has_stage = _STAGE.fullmatch(parts[-1]) is not None
    if has_stage:
        parts.pop()
    if len(parts) < 3 or not parts[0] or len(parts[0]) > MAX_ID_LENGTH:
        hint = "; does its tab miss?" if len(parts) == 2 and "=" not in line else ""
        detail = f"a node line is 'id -- description -- fields', not {_shown(line)}{hint}"
        lines.faults.append(Fault("unparsable_line", detail, at_line(number)))
        return
    name = parts[0]
    if name in lines.names:
        detail = f"node {name!r} was already given on line {lines.names[name]}; ids are unique"
        lines.faults.append(Fault("duplicate_id", detail, at_line(number)))
        return
    lines.names[name] = number
    values, faults = _read_fields(parts[-1], at_line(number))
    lines.faults += faults
    if faults:
        return
    outputs, has_list = values["activation_size"]
    lines.nodes[name] = Node(
        id=name,
        description=" -- ".join(parts[1:-1]),
        forward_s=values["forward_compute_time"][0][0] / MS_PER_S,
        backward_s=values["backward_compute_time"][0][0] / MS_PER_S,
        outputs_bytes=outputs,
        has_list=has_list,
        parameter_bytes=values["parameter_size"][0][0],
        has_stage=has_stage,
        line=number,
    )


def _read_fields(text: str, pointer: str) -> tuple[dict[str, tuple[tuple[float, ...], bool]], list[Fault]]:
    """Each field as its numbers and whether they stood in a list, and what is wrong with them."""
    pairs = _split_fields(text)
    if pairs is None:
        known = ", ".join(f"{name}=..." for name in (*TIMES, *SIZES))
        return {}, [Fault("unparsable_line", f"the fields are '{known}', not {_shown(text)}", pointer)]
    names = [name for name, _ in pairs]
    faults = [Fault("missing", f"{name} is missing", pointer) for name in (*TIMES, *SIZES) if name not in names]
    values: dict[str, tuple[tuple[float, ...], bool]] = {}
    for name, raw in pairs:
        if name not in (*TIMES, *SIZES):
            faults.append(Fault("unknown_field", f"there is no field {name!r} here", pointer))
        elif name in values:
            faults.append(Fault("duplicate_field", f"{name} is given twice", pointer))
        values[name] = _numbers(raw)
        faults += _number_faults(name, raw, values[name][1], pointer)
    return values, faults


def _split_fields(text: str) -> list[tuple[str, str]] | None:
    pairs: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None or len(pairs) == MAX_FIELDS:
            return None
        pairs.append((match[1], match[2].strip()))
        position = match.end()
    return pairs


def _numbers(raw: str) -> tuple[tuple[float, ...], bool]:
    is_list = raw.startswith("[")
    return tuple(float(item) for item in _items(raw) if _NUMBER.fullmatch(item)), is_list


def _items(raw: str) -> list[str]:
    return [item.strip() for item in raw.strip("[]").split(";")] if raw.startswith("[") else [raw]


def _number_faults(name: str, raw: str, is_list: bool, pointer: str) -> Iterator[Fault]:
    if is_list and name != "activation_size":
        yield Fault("wrong_type", f"{name} is one number, not the list {_shown(raw)}", pointer)
        return
    limit = MAX_SECONDS * MS_PER_S if name in TIMES else MAX_BYTES
    for item in _items(raw):
        if _NUMBER.fullmatch(item):
            yield from _range_faults(name, float(item), limit, pointer)
        elif _NOT_FINITE.fullmatch(item):
            yield Fault("not_finite", f"{name} is a finite number, not {item}", pointer)
        else:
            yield Fault("wrong_type", f"{name} is a number, not {_shown(item)}", pointer)


def _range_faults(name: str, value: float, limit: float, pointer: str) -> Iterator[Fault]:
    if value < 0:
        yield Fault("too_small", f"{name} is at least 0, not {value:g}", pointer)
    elif value == float("inf"):
        yield Fault("not_finite", f"{name} is too large to be represented", pointer)
    elif value > limit:
        yield Fault("too_large", f"{name} is at most {limit:g}, not {value:g}", pointer)


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 80 else text[:77] + "...")
