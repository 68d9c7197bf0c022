"""A cluster from one line: `4xV100-16G:pcie3`, `8xreference:10GB/s`, `2x(4xA100-40G:nvlink3):100Gb`.

    spec   = group [":" link]
    group  = COUNT "x" KIND { "+" COUNT "x" KIND }        devices of one host
           | COUNT "x" "(" spec ")"                       hosts; once more around: racks
    link   = (preset | N "Gb" | bandwidth) { "," option } what joins the members of the group
    option = "latency=" TIME | "mode=" ("blocking" | "overlapped" | "streaming")
           | "exchange=" ("fused" | "ordered") | "chunks=" COUNT

`10Gb` is Ethernet of that nominal rate, with a network's latency; `10Gb/s` is that bandwidth, without latency.
FPGAs that a streaming link joins are asynchronous: `4xVCU118:100Gb,mode=streaming,chunks=16`.
Without a link the transfers between devices of kind `reference` are free; other kinds must say how they are joined.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

from bapipe.errors import Fault, InvalidInputError
from bapipe.nearest import nearest
from bapipe.presets.devices import ALIASES, DEVICE_KINDS
from bapipe.presets.links import LINKS, ethernet
from bapipe.problem import MAX_DEVICES, Cluster, Device, DeviceKind, Link, Links

MAX_LEVELS = 3
MAX_BANDWIDTH = 1e21
MAX_LATENCY_S = 1e9
MAX_GIGABITS = 1e6
MAX_NAME_LENGTH = 200
MAX_CHUNKS = 1_000_000

BANDWIDTH_UNITS = {
    "B/s": 1.0,
    **{f"{prefix}B/s": 1000.0**power for power, prefix in enumerate("kMGT", start=1)},
    **{f"{prefix}iB/s": 1024.0**power for power, prefix in enumerate("KMGT", start=1)},
    **{f"{prefix}{bit}": 1000.0**power / 8 for power, prefix in enumerate("kMGT", 1) for bit in ("b/s", "bit/s")},
}
"""Bytes a second of each unit; small b is a bit."""

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
MODES = get_args(Link.model_fields["mode"].annotation)
EXCHANGES = get_args(Link.model_fields["exchange"].annotation)

_COUNT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*[xX×]\s*")
_ETHERNET = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*Gb")
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf|nan)\s*(.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """A piece of the spec and where in it the piece starts."""

    text: str
    start: int

    def stripped(self) -> Part:
        """Without the space around it."""
        lead = len(self.text) - len(self.text.lstrip())
        return Part(self.text.strip(), self.start + lead)

    def cut(self, start: int, end: int | None = None) -> Part:
        """From `start` to `end` of this part."""
        return Part(self.text[start:end], self.start + start)


@dataclass
class Level:
    """A group as written: copies of an inner group, or the devices of one host as (count, kind)."""

    copies: int = 1
    inner: Level | None = None
    devices: list[tuple[int, str]] = field(default_factory=list)
    link: Link | None = None


def cluster_from_spec(spec: str) -> Cluster:
    """The cluster that `spec` describes; devices are `host0/gpu0`, `host0/gpu1`, … in pipeline order, or
    `host0/fpga0`, ….

    Raises:
        InvalidInputError: with every fault of the spec and the character at which each is.
    """
    if not spec.strip():
        raise InvalidInputError([Fault("bad_spec", "the cluster is empty; write one such as 4xV100-16G:pcie3")])
    faults: list[Fault] = []
    top = _read_group(Part(spec, 0).stripped(), 1, faults)
    if not faults:
        faults += _size_faults(top)
    if faults:
        raise InvalidInputError(faults)
    levels = [top]
    while (inner := levels[-1].inner) is not None:
        levels.append(inner)
    return _cluster(spec.strip(), levels)


def _read_group(part: Part, depth: int, faults: list[Fault]) -> Level:
    body, link = _split_link(part)
    level = Level()
    if "(" in body.text or ")" in body.text:
        _read_inner(level, body, depth, faults)
    else:
        level.devices = _read_devices(body, faults)
    if link is not None:
        level.link = _read_link(link, faults)
    elif _needs_link(level):
        detail = "say what joins the members of this group, as in 4xV100-16G:pcie3"
        faults.append(_fault("missing_link", detail, part))
    return level


def _split_link(part: Part) -> tuple[Part, Part | None]:
    """The group, and what follows its colon outside of parentheses."""
    end = part.text.rfind(")") + 1
    colon = part.text.find(":", end)
    return (part, None) if colon < 0 else (part.cut(0, colon).stripped(), part.cut(colon + 1).stripped())


def _read_inner(level: Level, body: Part, depth: int, faults: list[Fault]) -> None:
    count = _COUNT.match(body.text)
    rest = body.cut(count.end() if count else body.text.find("(")).stripped()
    if not (rest.text.startswith("(") and rest.text.endswith(")")) or not _balanced(rest.text[1:-1]):
        faults.append(_fault("bad_spec", "write hosts as 2x(4xA100-40G:nvlink3):100Gb; check the parentheses", body))
        return
    level.copies = _read_count(count, body, faults)
    if depth == MAX_LEVELS:
        faults.append(_fault("bad_spec", "nested too deeply: devices in hosts in racks is the most", rest))
        return
    level.inner = _read_group(rest.cut(1, -1).stripped(), depth + 1, faults)


def _balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0


def _read_devices(body: Part, faults: list[Fault]) -> list[tuple[int, str]]:
    devices, start = [], 0
    for text in body.text.split("+"):
        term = body.cut(start, start + len(text)).stripped()
        start += len(text) + 1
        count = _COUNT.match(term.text)
        number = _read_count(count, term, faults)
        kind = term.cut(count.end() if count else 0)
        faults += _kind_faults(kind)
        devices.append((number, ALIASES.get(kind.text, kind.text)))
    return devices


def _read_count(match: re.Match[str] | None, part: Part, faults: list[Fault]) -> int:
    if match is None:
        faults.append(_fault("bad_spec", "a count and an x come first, as in 4xV100-16G", part))
        return 1
    number = float(match[1])
    where = part.cut(match.start(1), match.end(1))
    if number < 1:
        faults.append(_fault("too_small", f"a count is at least 1, not {match[1]}", where))
    elif number > MAX_DEVICES:
        faults.append(_fault("too_large", f"a count is at most {MAX_DEVICES}, not {match[1]}", where))
    elif number != int(number):
        faults.append(_fault("wrong_type", f"a count is a whole number, not {match[1]}", where))
    return max(1, int(min(number, MAX_DEVICES)))


def _kind_faults(kind: Part) -> Iterable[Fault]:
    if not kind.text:
        yield _fault("bad_spec", "a device kind follows the x, as in 4xV100-16G", kind)
        return
    known = [*DEVICE_KINDS, *ALIASES]
    if kind.text not in known:
        near = nearest(kind.text, known)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
        yield _fault("dangling_reference", f"there is no device kind {kind.text!r}; {hint}", kind)


def _needs_link(level: Level) -> bool:
    kinds = {kind for _, kind in _leaf(level).devices}
    members = level.copies if level.inner is not None else sum(count for count, _ in level.devices)
    return members > 1 and not kinds.isdisjoint(DEVICE_KINDS.keys() - {"reference"})


def _leaf(level: Level) -> Level:
    return level if level.inner is None else _leaf(level.inner)


def _read_link(part: Part, faults: list[Fault]) -> Link | None:
    base, *options = _split_commas(part)
    found: dict[str, Any] = {}
    if base.text in LINKS:
        found = LINKS[base.text].model_dump()
    elif (rate := _ETHERNET.fullmatch(base.text)) and 0 < float(rate[1]) <= MAX_GIGABITS:
        found = ethernet(float(rate[1])).model_dump()
    else:
        found["bandwidth_bytes_per_s"] = _read_bandwidth(base, faults)
        found["source"] = f"given as {base.text}"
    for option in options:
        found.update(_read_option(option, faults))
    return None if faults else Link(**found)


def _split_commas(part: Part) -> list[Part]:
    pieces, start = [], 0
    for text in part.text.split(","):
        pieces.append(part.cut(start, start + len(text)).stripped())
        start += len(text) + 1
    return pieces


def _read_bandwidth(part: Part, faults: list[Fault]) -> float | None:
    match = _QUANTITY.fullmatch(part.text)
    if match is None:
        near = nearest(part.text, LINKS)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(LINKS)}; or a bandwidth such as 10GB/s"
        faults.append(_fault("dangling_reference", f"there is no link {part.text!r}; {hint}", part))
        return None
    return _read_quantity(part, match, BANDWIDTH_UNITS, "a bandwidth", MAX_BANDWIDTH, faults)


def _read_option(part: Part, faults: list[Fault]) -> dict[str, Any]:
    name, _, value = part.text.partition("=")
    if (name == "mode" and value in MODES) or (name == "exchange" and value in EXCHANGES):
        return {name: value}
    if name == "chunks" and value.isascii() and value.isdigit() and 0 < int(value[:9]) <= MAX_CHUNKS:
        return {"chunks": int(value)}
    match = _QUANTITY.fullmatch(value)
    if name == "latency" and match is not None:
        return {"latency_s": _read_quantity(part, match, TIME_UNITS, "a latency", MAX_LATENCY_S, faults)}
    detail = (
        f"an option is latency=5us, mode={'|'.join(MODES)}, exchange={'|'.join(EXCHANGES)} or chunks=16 (at most "
        f"{MAX_CHUNKS}), not {part.text!r}"
    )
    faults.append(_fault("bad_spec", detail, part))
    return {}


def _read_quantity(
    part: Part, match: re.Match[str], units: dict[str, float], what: str, limit: float, faults: list[Fault]
) -> float | None:
    unit = match[2].strip()
    if unit not in units:
        near = difflib.get_close_matches(unit, units, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(units)}"
        faults.append(_fault("unknown_unit", f"{part.text!r} has no known unit; {hint}", part))
        return None
    value = float(match[1]) * units[unit]
    zero_allowed = units is TIME_UNITS
    if value != value or value in (float("inf"), float("-inf")):
        faults.append(_fault("not_finite", f"{what} is a finite number, not {part.text!r}", part))
    elif value < 0 or (value == 0 and not zero_allowed):
        bound = "at least 0" if zero_allowed else "above 0"
        faults.append(_fault("too_small", f"{what} is {bound}, not {part.text!r}", part))
    elif value > limit:
        faults.append(_fault("too_large", f"{what} of {part.text!r} is beyond anything built", part))
    return value


def _size_faults(top: Level) -> Iterable[Fault]:
    level: Level | None = top
    total = sum(count for count, _ in _leaf(top).devices)
    while level is not None:
        total *= level.copies
        level = level.inner
    if total > MAX_DEVICES:
        yield Fault("too_large", f"{total} devices; a cluster has at most {MAX_DEVICES}")


def _cluster(spec: str, levels: list[Level]) -> Cluster:
    """`levels` from the outermost in: racks, hosts, devices; the outer ones may be absent."""
    racks = levels[0].copies if len(levels) == MAX_LEVELS else 1
    hosts = levels[-2].copies if len(levels) > 1 else 1
    leaf = levels[-1]
    kinds = [kind for count, kind in leaf.devices for _ in range(count)]
    devices = [
        Device(id=f"host{host}/{_noun(kind)}{place}", kind=kind, host=f"host{host}", rack=f"rack{host // hosts}")
        for host in range(racks * hosts)
        for place, kind in enumerate(kinds)
    ]
    return Cluster(
        name=spec[:MAX_NAME_LENGTH],
        kinds=tuple(_kind(name, levels) for name in dict.fromkeys(kinds)),
        devices=tuple(devices),
        links=Links(
            within_host=leaf.link or Link(),
            between_hosts=(levels[-2].link or Link()) if len(levels) > 1 else None,
            between_racks=(levels[0].link or Link()) if len(levels) == MAX_LEVELS else None,
        ),
    )


def _kind(name: str, levels: list[Level]) -> DeviceKind:
    """The preset kind; an FPGA that a streaming link joins is asynchronous."""
    kind = DEVICE_KINDS[name]
    if kind.fpga is None or not any(level.link and level.link.mode == "streaming" for level in levels):
        return kind
    sources = {**kind.sources, "execution": "async: a streaming link joins it"}
    return kind.model_copy(update={"execution": "async", "sources": sources})


def _noun(kind: str) -> str:
    return "gpu" if DEVICE_KINDS[kind].fpga is None else "fpga"


def _fault(code: str, detail: str, part: Part) -> Fault:
    where = f"at character {part.start + 1}" + (f" ({part.text!r})" if part.text else "")
    return Fault(code, f"{detail}; {where} of the cluster")
