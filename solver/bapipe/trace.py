"""A simulated step in the Trace Event Format, as JSON that Perfetto and chrome://tracing open.

A device is a process. Its threads are what it computes, each neighbour that it sends to or receives from, and the
all-reduce of its stage; two counters follow the micro-batches that it keeps and the memory that it needs. An arrow
leads from a send to its receipt. The same simulation gives the same text.

Times are in microseconds, rounded to the nanosecond, the resolution of both programs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bapipe.cost.memory import kept_bytes_per_sample, stash_bytes_per_sample
from bapipe.lowering import BACKWARDS
from bapipe.plan import Plan, Stage
from bapipe.simulator import drawn
from bapipe.timeline.spans import KINDS, NONE, Span, device_spans

if TYPE_CHECKING:
    from bapipe.simulator import Simulation

Event = dict[str, Any]

NANOSECONDS_PER_SECOND = 1e9
TENSORS = {"F": "activation", "B": "gradient"}
RELEASING = "BW"
"""At whose end a micro-batch is no longer kept: the backward, or its last part where it is split."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Something on a thread; nanoseconds from the start of the step. Slices that share a `flow` are one transfer."""

    name: str
    start_ns: int
    end_ns: int
    arguments: dict[str, Any]
    flow: int | None = None


@dataclass
class Process:
    """A device: its operations, and its threads by name in the order of their display."""

    name: str
    operations: list[Span]
    threads: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Stash:
    """Bytes of a micro-batch of a stage: all of its stash, and what is left of it where layers are recomputed."""

    full_bytes: float
    kept_bytes: float


@dataclass(frozen=True, slots=True)
class Kept:
    """What a device keeps from a moment on, or how that changes: micro-batches, and bytes of their stashes."""

    time_s: float
    microbatches: int
    stash_bytes: float


def chrome_trace(plan: Plan, simulation: Simulation) -> str:
    """The trace of `simulation`, that of `plan`, as JSON: an event a line. Without a flush: of several steps."""
    simulation = drawn(plan, simulation)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    events = ",\n".join(encode(event) for event in trace_events(plan, simulation))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{events}\n]}}\n'


def trace_events(plan: Plan, simulation: Simulation) -> Iterator[Event]:
    """The events of the trace, device by device and thread by thread, in the order of time."""
    sizes = [_stash(plan, stage) for stage in plan.stages]
    for number, process in enumerate(_processes(plan, simulation), start=1):
        yield from _process_names(number, process)
        thread = 0
        for name, slices in process.threads.items():
            for lane, some in enumerate(_lanes(slices), start=1):
                thread += 1
                yield from _thread_names(number, thread, name if lane == 1 else f"{name} ({lane})")
                for part in some:
                    yield from _slice_events(number, thread, name.split(" ")[0], part)
        changes = _kept(process.operations, sizes, training=simulation.cost.training)
        kept = list(_in_time(changes))
        yield from _counters(number, kept, simulation.peak_memory_bytes[number - 1], simulation.step_time_s)


def _processes(plan: Plan, simulation: Simulation) -> list[Process]:
    processes = []
    for (device, spans), engines in zip(device_spans(simulation), simulation.engines, strict=True):
        process = Process(device, [span for span in spans if span.kind != "O"])
        for span in spans:
            engine = "" if engines == 1 else " forwards" if span.kind == "F" else " backwards"
            process.threads[f"compute{engine}"].append(_computed(span))
        processes.append(process)
    _add_transfers(simulation, processes)
    for reduction, ring in zip(simulation.reductions, _rings(plan, simulation), strict=True):
        arguments = {"stage": reduction.stage, "kind": KINDS["A"].name, "bytes": reduction.size_bytes}
        part = _slice("all-reduce", reduction.start_s, reduction.end_s, arguments)
        for process in processes:
            if process.name in ring:
                process.threads["all-reduce"].append(part)
    return processes


def _rings(plan: Plan, simulation: Simulation) -> list[set[str]]:
    """The devices of each reduction: those of its stage; of the last ones, those that hold the same tied parameters."""
    if not simulation.reductions:
        return []
    tied = []
    for parameters in plan.request.profile.tied_parameters:
        holders = [stage for stage in plan.stages if not set(parameters.layers).isdisjoint(stage.layers)]
        ring = {device for stage in holders for device in stage.devices}
        tied += [ring] if len(ring) > 1 else []
    stages = simulation.reductions[: len(simulation.reductions) - len(tied)]
    return [*(set(plan.stages[reduction.stage].devices) for reduction in stages), *tied]


def _add_transfers(simulation: Simulation, processes: list[Process]) -> None:
    sent, names = simulation.transfers, simulation.devices
    columns = zip(sent.source, sent.target, sent.kind, sent.microbatch, sent.start_s, sent.end_s, strict=True)
    for flow, (source, target, kind, microbatch, start_s, end_s) in enumerate(columns):
        arguments = {"micro-batch": microbatch, "kind": TENSORS[kind], "from": names[source], "to": names[target]}
        part = _slice(f"{TENSORS[kind]} {microbatch}", start_s, end_s, arguments, flow)
        processes[source].threads[f"send to {names[target]}"].append(part)
        processes[target].threads[f"receive from {names[source]}"].append(part)


def _computed(span: Span) -> Slice:
    kind = KINDS[span.kind]
    if span.microbatch == NONE:
        return _slice(kind.name, span.start_s, span.end_s, {"kind": kind.name})
    arguments = {"stage": span.stage, "micro-batch": span.microbatch, "kind": kind.name}
    return _slice(f"{kind.letter}{span.microbatch}", span.start_s, span.end_s, arguments)


def _slice(name: str, start_s: float, end_s: float, arguments: dict[str, Any], flow: int | None = None) -> Slice:
    return Slice(name, _nanoseconds(start_s), _nanoseconds(end_s), arguments, flow)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS_PER_SECOND)


def _lanes(slices: list[Slice]) -> list[list[Slice]]:
    """The slices on as few threads as show none above another: each goes to the first that is free."""
    lanes: list[list[Slice]] = []
    for part in sorted(slices, key=lambda each: each.start_ns):
        free = next((lane for lane in lanes if lane[-1].end_ns <= part.start_ns), None)
        if free is None:
            lanes.append([part])
        else:
            free.append(part)
    return lanes


def _process_names(number: int, process: Process) -> Iterator[Event]:
    stages = sorted({span.stage for span in process.operations})
    yield _metadata(number, 0, "process_name", {"name": process.name})
    yield _metadata(number, 0, "process_labels", {"labels": ", ".join(f"stage {stage}" for stage in stages)})
    yield _metadata(number, 0, "process_sort_index", {"sort_index": number})


def _thread_names(process: int, thread: int, name: str) -> Iterator[Event]:
    yield _metadata(process, thread, "thread_name", {"name": name})
    yield _metadata(process, thread, "thread_sort_index", {"sort_index": thread})


def _metadata(process: int, thread: int, name: str, arguments: dict[str, Any]) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": name, "args": arguments}


def _slice_events(process: int, thread: int, category: str, part: Slice) -> Iterator[Event]:
    """A complete event; for a transfer also the end of its arrow, inside of the slice so that it is bound to it."""
    place: Event = {"pid": process, "tid": thread, "cat": category}
    yield {
        "ph": "X",
        **place,
        "name": part.name,
        "ts": part.start_ns / 1e3,
        "dur": (part.end_ns - part.start_ns) / 1e3,
        "args": part.arguments,
    }
    if part.flow is None or part.end_ns - part.start_ns < 2:
        return
    arrow: Event = {**place, "cat": "transfer", "name": "transfer", "id": part.flow}
    if category == "send":
        yield {"ph": "s", **arrow, "ts": part.start_ns / 1e3}
    else:
        yield {"ph": "f", "bp": "e", **arrow, "ts": (part.end_ns - 1) / 1e3}


def _counters(process: int, kept: list[Kept], peak_bytes: float, step_time_s: float) -> Iterator[Event]:
    """What the device keeps, whenever that changes.

    Its order decides which stashes are alive; all else that it needs (weights, buffers, work space, reserve) it holds
    throughout. So its memory is the simulation's peak less the stashes that are not there yet, or no more.
    """
    most_bytes = max(moment.stash_bytes for moment in kept)
    for moment in (*kept, replace(kept[-1], time_s=step_time_s)):
        memory_bytes = peak_bytes - (most_bytes - moment.stash_bytes)
        yield _counter(process, moment.time_s, "memory", {"bytes": memory_bytes})
        yield _counter(process, moment.time_s, "in flight", {"micro-batches": moment.microbatches})


def _in_time(changes: Iterator[Kept]) -> Iterator[Kept]:
    """The changes of what is kept, added up in the order of time: two engines of a device do not take turns."""
    microbatches, stash_bytes = 0, 0.0
    for change in sorted(changes, key=lambda each: each.time_s):
        microbatches, stash_bytes = microbatches + change.microbatches, stash_bytes + change.stash_bytes
        yield Kept(change.time_s, microbatches, stash_bytes)


def _kept(operations: list[Span], sizes: list[Stash], *, training: bool) -> Iterator[Kept]:
    """What changes of what is kept, and when, from nothing at the start: `bapipe.simulator.occupancy` in time.

    In inference a micro-batch is in flight while it is computed, and has no stash.
    """
    apart = {span.stage for span in operations if span.kind == "R"}
    yield Kept(0.0, 0, 0.0)
    for span in operations:
        size = sizes[span.stage]
        gained_bytes = _gained_bytes(span.kind, size, apart=span.stage in apart)
        if span.kind == "F" or gained_bytes:
            yield Kept(span.start_s, int(span.kind == "F"), gained_bytes)
        if span.kind in (RELEASING if training else "F"):
            yield Kept(span.end_s, -1, -size.full_bytes)


def _gained_bytes(kind: str, size: Stash, *, apart: bool) -> float:
    """What an operation adds at its start: a forward what is kept; what executes it again, the rest of the stash."""
    if kind == "F":
        return size.kept_bytes
    again = kind == "R" or (kind in BACKWARDS and not apart)
    return size.full_bytes - size.kept_bytes if again else 0.0


def _stash(plan: Plan, stage: Stage) -> Stash:
    request, mine, again = plan.request, set(stage.layers), set(stage.recomputed_layers)
    layers = [layer for layer in request.profile.layers if layer.id in mine]
    samples = 0 if plan.schedule is None else plan.schedule.microbatch_size
    kept = [kept_bytes_per_sample(request, layer, recomputed=layer.id in again) for layer in layers]
    return Stash(samples * sum(stash_bytes_per_sample(request, layer) for layer in layers), samples * sum(kept))


def _counter(process: int, time_s: float, name: str, values: dict[str, Any]) -> Event:
    return {"ph": "C", "pid": process, "tid": 0, "name": name, "ts": _nanoseconds(time_s) / 1e3, "args": values}
