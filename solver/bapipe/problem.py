"""The problem: what is trained (`ModelProfile`), on what (`Cluster`), and what is asked (`PlanRequest`).

Seconds, bytes, FLOPs and samples, always. All types are frozen; the same types are the Python API, the JSON on the
wire and the file on disk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from bapipe.errors import Fault
from bapipe.faults import (
    Bytes,
    BytesPerSample,
    Count,
    Document,
    Flag,
    Name,
    Rate,
    Seconds,
    duplicate_faults,
    member,
    members,
    names_of,
    number,
    unknown_reference,
)
from bapipe.operators import Operator, OperatorKind

MAX_LAYERS = 20_000
MAX_DEVICES = 4_096
MAX_BLOCKS = 2**17
"""Of memory on a chip: each is a step of the knapsack that says what stays there."""

SchemaVersion = Literal[1]
DType = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
ScheduleName = Literal["data-parallel", "gpipe", "1f1b", "1f1b-so", "fbp-as", "pipedream"]
OTHER_NAMES = {
    "custom": "custom names given orders: plan another schedule, then execute yours with simulate --orders FILE",
    "1f1b-sno": "1F1B-SNO is 1f1b over links whose mode is blocking; name 1f1b",
    "1f1b-as": "1F1B-AS is 1f1b over links whose mode is streaming; name 1f1b",
    **dict.fromkeys(
        ("interleaved", "zb-h1", "zb-h2", "zb-v"),
        "schedules with several stages a device or split backwards are not searched: bapipe schedules --plan {name} "
        "prints a plan with its orders, which can be changed and simulated",
    ),
}
"""What to do instead of naming a schedule in a request that cannot be chosen by name."""

Objective = Literal["step-time", "bottleneck", "latency", "peak-memory", "kv-capacity", "fewest-devices"]
Communication = Literal["none", "overlap", "serial"]
Cuts = Literal["any", "topological-order"]
SOLVER_NAMES = r"^(auto|dp|cp-sat|milp(:[A-Za-z0-9_]+)?)$"
Solver = Annotated[str, Field(strict=True, max_length=200, json_schema_extra={"pattern": SOLVER_NAMES})]
"""What searches the bottleneck: `milp` is HiGHS, `milp:NAME` the solver that PuLP knows by that name."""
Joules = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
"""A part of a whole, not none of it."""

MAC_J: dict[DType, float] = {"fp32": 4.6e-12, "fp16": 1.5e-12, "bf16": 1.5e-12, "int8": 0.23e-12}
MACS_PER_DSP: dict[DType, float] = {"fp32": 0.2, "fp16": 1.0, "bf16": 1.0, "int8": 1.75}


def _choosable(name: Any) -> Any:
    if isinstance(name, str) and name.lower() in OTHER_NAMES:
        detail = OTHER_NAMES[name.lower()].format(name=name.lower())
        raise PydanticCustomError("unknown_value", "{detail}", {"detail": detail})
    return name


ChosenSchedule = Annotated[ScheduleName, BeforeValidator(_choosable)]


class LayerTime(Document):
    """One measured point: how long a layer takes on a device kind for a micro-batch of this size.

    `backward_s` is the whole backward; where the split is known, `input_gradient_s` + `weight_gradient_s` is its sum.
    """

    device_kind: Name
    microbatch_size: Count
    forward_s: Seconds
    backward_s: Seconds
    input_gradient_s: Seconds | None = None
    weight_gradient_s: Seconds | None = None

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        split = [member(raw, "input_gradient_s"), member(raw, "weight_gradient_s")]
        if split.count(None) == 1:
            detail = "give input_gradient_s and weight_gradient_s together, or neither"
            yield Fault("incomplete_split", detail)
        input_gradient_s, weight_gradient_s = number(raw, "input_gradient_s"), number(raw, "weight_gradient_s")
        whole = number(raw, "backward_s")
        if input_gradient_s is not None and weight_gradient_s is not None and whole is not None:
            total = input_gradient_s + weight_gradient_s
            if abs(total - whole) > 1e-6 * max(total, whole):
                detail = f"the split sums to {total:g} s where backward_s is {whole:g} s"
                yield Fault("inconsistent_split", detail, "/backward_s")


class FpgaResources(Document):
    """What a layer asks of an FPGA: DSP slices, and on-chip bytes for its weights and buffers."""

    dsp_slices: Annotated[int, Field(strict=True, ge=0)] = 0
    on_chip_bytes: Bytes = 0


class ExecutionOption(Document):
    """Another way to execute a layer: split over several devices, or recomputed in the backward."""

    name: Name
    tensor_parallel_degree: Count = 1
    recompute: Flag = False
    times: tuple[LayerTime, ...] = ()
    parameter_bytes: Bytes = 0
    stash_bytes_per_sample: BytesPerSample = 0.0
    synchronisation_bytes_per_sample: BytesPerSample = 0.0


class Layer(Document):
    """An atomic unit of the network.

    `*_bytes_per_sample` are per sample of the micro-batch. `gradient_bytes` None: as many as the parameters.
    `stash_bytes_per_sample` is what the layer keeps from its forward for its backward; None: its output. `operators`
    say what it computes, by shape, which an FPGA's costs are worked out from; None: not known.
    """

    id: Name
    kind: Annotated[str, Field(max_length=1000)] = ""
    times: tuple[LayerTime, ...] = ()
    forward_flops_per_sample: Annotated[float, Field(strict=True, ge=0, le=1e24)] | None = None
    parameter_bytes: Bytes = 0
    gradient_bytes: Bytes | None = None
    master_weight_bytes: Bytes = 0
    output_bytes_per_sample: BytesPerSample = 0.0
    stash_bytes_per_sample: BytesPerSample | None = None
    recompute_stash_bytes_per_sample: BytesPerSample | None = None
    workspace_bytes: Bytes = 0
    kv_bytes_per_token: BytesPerSample = 0.0
    streamable: Flag = False
    fpga: FpgaResources | None = None
    operators: tuple[Operator, ...] | None = None
    options: tuple[ExecutionOption, ...] = ()

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        points = Counter(
            (kind, size)
            for time in members(raw, "times")
            if isinstance(kind := member(time, "device_kind"), str)
            and isinstance(size := member(time, "microbatch_size"), int)
        )
        for (kind, size), count in points.items():
            if count > 1:
                detail = f"{count} times for device kind {kind!r} at micro-batch size {size}; give one"
                yield Fault("duplicate_time", detail, "/times")


class Edge(Document):
    """`target` reads what `source` wrote.

    Edges without bytes carry the source's output; a tensor that several layers read crosses a cut once. An edge with
    its own bytes carries another tensor; edges of one source that name the same `tensor` share it.
    """

    source: Name
    target: Name
    bytes_per_sample: BytesPerSample | None = None
    tensor: Name | None = None

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        if member(raw, "tensor") is not None and member(raw, "bytes_per_sample") is None:
            detail = "an edge that names its tensor says how many bytes_per_sample it has"
            yield Fault("missing", detail, "/bytes_per_sample")


class TiedParameters(Document):
    """Parameters used by several layers: each stage that holds one of them keeps a copy and reduces its gradient."""

    layers: Annotated[tuple[Name, ...], Field(min_length=2)]
    parameter_bytes: Bytes


class Pin(Document):
    """A layer that must be on the first or last stage, or on a device."""

    layer: Name
    stage: Literal["first", "last"] | None = None
    device: Name | None = None

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        if (member(raw, "stage") is None) == (member(raw, "device") is None):
            yield Fault("incomplete_pin", "a pin names either a stage (first, last) or a device")


class ModelProfile(Document):
    """A network as a DAG of layers with their times and sizes.

    `edges` None: the layers form a chain in their order. `bytes_per_parameter` turns parameter bytes into a number of
    parameters, of which the optimizer keeps its state.
    """

    schema_version: SchemaVersion = 1
    name: Name
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    edges: tuple[Edge, ...] | None = None
    bytes_per_parameter: Count = 4
    tied_parameters: tuple[TiedParameters, ...] = ()
    groups: tuple[Annotated[tuple[Name, ...], Field(min_length=2)], ...] = ()
    pins: tuple[Pin, ...] = ()
    source: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        layers = members(raw, "layers")
        names = names_of(layers)
        yield from duplicate_faults(layers, "/layers", "layer")
        yield from _edge_faults(members(raw, "edges"), names)
        for index, pin in enumerate(members(raw, "pins")):
            yield from unknown_reference(member(pin, "layer"), names, f"/pins/{index}/layer", "layer")
        for field in ("groups", "tied_parameters"):
            for index, item in enumerate(members(raw, field)):
                pointer = f"/{field}/{index}"
                group = members(item, "layers") if field == "tied_parameters" else item
                pointer += "/layers" if field == "tied_parameters" else ""
                yield from _layer_list_faults(group, names, pointer)


class FpgaEnergy(Document):
    """Joules of what an FPGA does, beside `static_w` that it takes whatever it does.

    Defaults: arithmetic and on-chip memory (a 32 KiB bank) by Horowitz, "Computing's energy problem", ISSCC 2014,
    figure 1.1.9, at 45 nm; taken unchanged for an FPGA of 16 nm, whose smaller transistors and programmable wires
    (7 to 14 times a fixed circuit's power: Kuon and Rose, IEEE TCAD 26, 2007) pull in opposite directions: an
    assumption. Off chip: 20 pJ a bit of DDR4, on links: 10 pJ a bit of both transceivers, round figures, assumed.
    """

    mac_j: dict[DType, Joules] = Field(default_factory=lambda: dict(MAC_J))
    elementwise_j: Joules = 0.9e-12
    on_chip_j_per_byte: Joules = 2.5e-12
    off_chip_j_per_byte: Joules = 160e-12
    link_j_per_byte: Joules = 80e-12
    static_w: Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)] = 0.0


class Fpga(Document):
    """The FPGA side of a device kind: DSP slices, clock, the two levels of memory, and how a design uses them.

    `macs_per_dsp`: multiply-accumulates of a slice in a cycle. Defaults: fp32 a fifth, since one takes 5 slices (C.
    Zhang et al., FPGA 2015); fp16 and bf16 one, whose significands fit the 27 x 18 multiplier (UG579) when sums are
    aligned in logic, an assumption; int8 1.75 (WP486). Slices form arrays of `input_lanes` x `output_lanes`
    multiply-accumulates; channels that do not fill the lanes leave some idle. `efficiency` is the share of the cycles
    in which the arrays then work, by kind of operator (1 where none is given); `elementwise_lanes` how many operations
    a cycle the units beside the arrays do. On-chip memory comes in blocks of `memory_block_bytes`; `buffer_bytes` of it
    (None: an eighth) are set aside for what passes from layer to layer. `off_chip_efficiency`: the share of the
    bandwidth that bursts reach. `fifo_bytes`: what waits in front of each direction of a streaming link, in distributed
    memory beside the blocks; None: without limit, as the planner takes it.
    """

    dsp_slices: Count
    clock_hz: Rate
    on_chip_bytes: Bytes
    off_chip_bytes: Bytes
    off_chip_bandwidth_bytes_per_s: Rate
    macs_per_dsp: dict[DType, Rate] = Field(default_factory=lambda: dict(MACS_PER_DSP))
    input_lanes: Count = 16
    output_lanes: Count = 32
    elementwise_lanes: Count = 512
    efficiency: dict[OperatorKind, Share] = Field(default_factory=dict)
    memory_block_bytes: Count = 36 * 1024
    buffer_bytes: Bytes | None = None
    off_chip_efficiency: Share = 1.0
    fifo_bytes: Count | None = None
    energy: FpgaEnergy = FpgaEnergy()

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        buffers, memory = member(raw, "buffer_bytes"), member(raw, "on_chip_bytes")
        if isinstance(buffers, int | float) and isinstance(memory, int | float) and buffers > memory:
            detail = f"{buffers} bytes are set aside of {memory} on the chip; the buffers are part of its memory"
            yield Fault("too_large", detail, "/buffer_bytes")
        block = member(raw, "memory_block_bytes")
        if isinstance(memory, int | float) and isinstance(block, int) and 1 <= block * MAX_BLOCKS < memory:
            detail = f"more than {MAX_BLOCKS} blocks of {block} bytes on the chip; make the blocks larger"
            yield Fault("too_large", detail, "/on_chip_bytes")


class DeviceKind(Document):
    """A kind of accelerator. `memory_bytes` None: what an FPGA has off chip; of others, unlimited. `sources` names
    where each figure comes from.
    """

    name: Name
    memory_bytes: Bytes | None = None
    reserved_bytes: Bytes = 0
    peak_flops: dict[DType, Rate] = Field(default_factory=dict)
    memory_bandwidth_bytes_per_s: Rate | None = None
    launch_overhead_s: Seconds = 0.0
    execution: Literal["sync", "async"] = "sync"
    fpga: Fpga | None = None
    sources: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        memory, reserved = member(raw, "memory_bytes"), member(raw, "reserved_bytes")
        if isinstance(memory, int | float) and isinstance(reserved, int | float) and reserved > memory:
            detail = f"{reserved} bytes are reserved of {memory}; the reserve is part of the memory"
            yield Fault("too_large", detail, "/reserved_bytes")


class Device(Document):
    """One accelerator: its kind, where it sits, and how fast it is beside its kind (`speed` 2: half the time)."""

    id: Name
    kind: Name
    host: Name = "host0"
    rack: Name = "rack0"
    speed: Annotated[float, Field(strict=True, ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0
    memory_bytes: Bytes | None = None


class Link(Document):
    """How two devices are joined: full duplex, one transfer a direction at a time, first come first served.

    `bandwidth_bytes_per_s` None: transfers are free. A `blocking` transfer holds both devices, an `overlapped` one
    neither, a `streaming` one passes a tensor on in `chunks` while it is made.
    """

    bandwidth_bytes_per_s: Rate | None = None
    latency_s: Seconds = 0.0
    mode: Literal["blocking", "overlapped", "streaming"] = "overlapped"
    exchange: Literal["fused", "ordered"] = "fused"
    chunks: Count = 1
    source: str = ""


class PairLink(Document):
    """The link between two named devices, where it differs from that of their level; both directions."""

    devices: tuple[Name, Name]
    link: Link


class Links(Document):
    """The links by level; `pairs` overrides single pairs, up to a full matrix."""

    within_host: Link = Link()
    between_hosts: Link | None = None
    between_racks: Link | None = None
    pairs: tuple[PairLink, ...] = ()


class Cluster(Document):
    """Devices in pipeline order, their kinds, and how they are joined."""

    schema_version: SchemaVersion = 1
    name: Name = "cluster"
    kinds: Annotated[tuple[DeviceKind, ...], Field(min_length=1)]
    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=MAX_DEVICES)]
    links: Links = Links()
    host_nic: Link | None = None
    skip_tensors: Literal["relay", "direct"] = "relay"
    receive_buffers: Literal["all", "in_flight"] = "in_flight"

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        kinds, devices = members(raw, "kinds"), members(raw, "devices")
        yield from duplicate_faults(kinds, "/kinds", "device kind", key="name")
        yield from duplicate_faults(devices, "/devices", "device")
        known = names_of(kinds, "name")
        for index, device in enumerate(devices):
            yield from unknown_reference(member(device, "kind"), known, f"/devices/{index}/kind", "device kind")
        yield from _link_faults(member(raw, "links"), devices)


class PlanRequest(Document):
    """What is to be planned: a profile, a cluster, the mini-batch, what may be chosen, and what is best.

    `microbatch_sizes` and `microbatch_counts` None: every size that divides the mini-batch (objective `bottleneck`: the
    whole mini-batch). `schedules` None: every schedule that the cluster's links allow and that trains as
    one device would; `pipedream`, which does not, is only chosen where it is named.
    `optimizer_bytes_per_parameter`: state the optimizer keeps (8: Adam in 32 bits; 4: momentum; 0: plain SGD).
    """

    schema_version: SchemaVersion = 1
    profile: ModelProfile
    cluster: Cluster
    batch_size: Count
    task: Literal["training", "inference"] = "training"
    objective: Objective = "step-time"
    communication: Communication = "overlap"
    cuts: Cuts = "any"
    schedules: Annotated[tuple[ChosenSchedule, ...], Field(min_length=1)] | None = None
    microbatch_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    microbatch_counts: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    max_stages: Count | None = None
    max_replication: Count | None = None
    recomputation: Literal["never", "allowed", "always"] = "never"
    device_order: Literal["fixed", "free"] = "fixed"
    idle_devices: Flag = True
    dtype: DType = "fp32"
    measured_on: Name | None = None
    optimizer_bytes_per_parameter: Annotated[int, Field(strict=True, ge=0, le=1000)] = 8
    gradient_bucket_bytes: Annotated[int, Field(strict=True, ge=1)] = 25 * 2**20
    solver: Solver = "auto"
    time_limit_s: Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False)] = 60.0
    gap: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] = 0.0

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        batch = member(raw, "batch_size")
        sizes, counts = members(raw, "microbatch_sizes"), members(raw, "microbatch_counts")
        if sizes and counts:
            detail = "give microbatch_sizes or microbatch_counts, not both"
            yield Fault("conflicting_fields", detail, "/microbatch_counts")
        for field, values in (("microbatch_sizes", sizes), ("microbatch_counts", counts)):
            for index, value in enumerate(values):
                if isinstance(batch, int) and isinstance(value, int) and value >= 1 <= batch and batch % value:
                    detail = f"{value} does not divide the mini-batch of {batch} samples"
                    yield Fault("does_not_divide", detail, f"/{field}/{index}")
        solver = member(raw, "solver")
        if isinstance(solver, str) and not re.fullmatch(SOLVER_NAMES, solver):
            detail = f"there is no solver {solver!r}; use auto, dp, cp-sat, milp, or milp:NAME with a name of PuLP"
            yield Fault("unknown_value", detail, "/solver")
        yield from _pinned_device_faults(raw)


def _edge_faults(edges: list[Any], names: set[str]) -> Iterator[Fault]:
    seen: set[tuple[str, str, str]] = set()
    graph: dict[str, set[str]] = {name: set() for name in names}
    for index, edge in enumerate(edges):
        source, target = member(edge, "source"), member(edge, "target")
        for end, name in (("source", source), ("target", target)):
            yield from unknown_reference(name, names, f"/edges/{index}/{end}", "layer")
        if not isinstance(source, str) or not isinstance(target, str):
            continue
        key = (source, target, repr(member(edge, "tensor")))
        if key in seen:
            detail = f"the edge {source!r} -> {target!r} is given twice"
            yield Fault("duplicate_edge", detail, f"/edges/{index}")
        seen.add(key)
        if source in names and target in names:
            graph[target].add(source)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = " -> ".join(error.args[1])
        yield Fault("cycle", f"the layers form a cycle: {path}; a profile is acyclic", "/edges")


def _layer_list_faults(names: Any, known: set[str], pointer: str) -> Iterator[Fault]:
    if not isinstance(names, list | tuple):
        return
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not isinstance(name, str):
            continue
        yield from unknown_reference(name, known, f"{pointer}/{index}", "layer")
        if name in seen:
            yield Fault("duplicate_id", f"layer {name!r} is named twice", f"{pointer}/{index}")
        seen.add(name)


def _link_faults(links: Any, devices: list[Any]) -> Iterator[Fault]:
    names = names_of(devices)
    seen: set[frozenset[Any]] = set()
    for index, pair in enumerate(members(links, "pairs")):
        ends = [end for end in members(pair, "devices") if isinstance(end, str)]
        pointer = f"/links/pairs/{index}/devices"
        if frozenset(ends) in seen:
            yield Fault("duplicate_link", f"the link of {' and '.join(ends)} was already given; give one", pointer)
        seen.add(frozenset(ends))
        for end, name in enumerate(ends):
            yield from unknown_reference(name, names, f"{pointer}/{end}", "device")
        if len(ends) == 2 and ends[0] == ends[1]:
            yield Fault("self_link", f"device {ends[0]!r} needs no link to itself", pointer)
    for level, place in (("between_hosts", "host"), ("between_racks", "rack")):
        places = {name if isinstance(name := member(device, place), str) else f"{place}0" for device in devices}
        if len(places) > 1 and member(links, level) is None and not members(links, "pairs"):
            detail = f"the devices are on {len(places)} {place}s: say how those are joined"
            yield Fault("missing_link", detail, f"/links/{level}")


def _pinned_device_faults(raw: Any) -> Iterable[Fault]:
    devices = names_of(members(member(raw, "cluster"), "devices"))
    faults: list[Fault] = []
    for index, pin in enumerate(members(member(raw, "profile"), "pins")):
        pointer = f"/profile/pins/{index}/device"
        faults += unknown_reference(member(pin, "device"), devices, pointer, "device")
    return faults
