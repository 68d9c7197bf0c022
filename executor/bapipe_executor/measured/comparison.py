"""What the ranks measured beside what the simulator says of their plan."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from bapipe.cost.memory import kept_bytes_per_sample, stash_bytes_per_sample
from bapipe.lowering import BACKWARDS, Message
from bapipe.orders import OPERATION
from bapipe.plan import Plan
from bapipe.simulator import Simulation, simulate
from bapipe.simulator.event_simulation import prepare
from bapipe.simulator.occupancy import Held
from bapipe.simulator.workload import Workload
from bapipe_executor.actions import actions_of
from bapipe_executor.measured.records import DeviceReport, OperationReport, RankRecord, RunReport, StepRecord
from bapipe_executor.placement import placement_of

ACTION = re.compile(r"(\d+)(F|B|I|W|R|RECV_F|RECV_B)(\d+)")
"""The actions that take or free memory: stage, kind, micro-batch."""

Durations = dict[tuple[int, str], float]
"""Seconds of the operations of a stage of one kind."""


def compare(plan: Plan, ranks: Sequence[RankRecord]) -> RunReport:
    """The report of a run of `plan`. A first step, in which memory is allocated, does not count if there are others."""
    simulation = simulate(plan)
    kept = [_steady(record) for record in ranks]
    predicted = predicted_durations(simulation)
    measured = measured_durations(ranks)
    step_s = _median(step.whole.seconds for step in kept[0])
    busy_s = [_median(sum(o.seconds for o in step.operations) for step in steps) for steps in kept]
    by_device = dict(zip(simulation.devices, simulation.busy_s, strict=True))
    saved = predicted_saved_bytes(plan)
    return RunReport(
        steps=len(kept[0]),
        measured_step_s=step_s,
        predicted_step_s=simulation.step_time_s,
        measured_bubble=1 - sum(busy_s) / (len(ranks) * step_s),
        predicted_bubble=simulation.bubble_fraction,
        operations=tuple(
            OperationReport(stage=stage, kind=kind, measured_s=seconds, predicted_s=predicted[stage, kind])
            for (stage, kind), seconds in sorted(measured.items())
        ),
        devices=tuple(
            DeviceReport(
                device=record.device,
                measured_busy_s=busy,
                predicted_busy_s=by_device[record.device],
                measured_saved_bytes=record.peak_saved_bytes,
                predicted_saved_bytes=saved[record.device],
            )
            for record, busy in zip(ranks, busy_s, strict=True)
        ),
    )


def measured_durations(ranks: Sequence[RankRecord]) -> Durations:
    """The medians over steps, micro-batches and replicas."""
    seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
    for record in ranks:
        for step in _steady(record):
            for timed in step.operations:
                found = OPERATION.fullmatch(timed.name)
                assert found is not None, timed.name
                seconds[int(found[1]), found[2]].append(timed.seconds)
    return {key: _median(values) for key, values in seconds.items()}


def predicted_saved_bytes(plan: Plan) -> dict[str, float]:
    """Most bytes of stashes and receive buffers of each device: the plan's sizes, in the order of a rank's actions.

    A plan's own peak memory has, for every kind of message, one more buffer than is in use: for what may be on its way.
    """
    assert plan.schedule is not None
    work = prepare(plan, plan.schedule).work
    stages = [_held(plan, stage.index, work) for stage in plan.stages]
    return {
        device: _most_held(actions, stages)
        for device, actions in zip(placement_of(plan).devices, actions_of(plan), strict=True)
    }


def _most_held(actions: Sequence[str], stages: Sequence[Held]) -> float:
    """A receive takes a buffer, a forward leaves what is kept; the end of the backward (B, or W) frees all of it."""
    found = [match for match in map(ACTION.fullmatch, actions) if match]
    split, apart = ({int(match[1]) for match in found if match[2] == kind} for kind in ("W", "R"))
    held: dict[tuple[str, str], float] = defaultdict(float)
    now = most = 0.0
    for match in found:
        stage, kind = int(match[1]), match[2]
        added = _added_bytes(kind, stages[stage], apart=stage in apart)
        held[match[1], match[3]] += added
        now += added
        most = max(most, now)
        if kind == ("W" if stage in split else "B"):
            now -= held.pop((match[1], match[3]))
    return most


def _added_bytes(kind: str, stage: Held, *, apart: bool) -> float:
    """What an action of a stage takes at its start."""
    if kind in ("RECV_F", "RECV_B"):
        return stage.input_bytes if kind == "RECV_F" else stage.output_bytes
    if kind == "F":
        return stage.kept_bytes
    again = kind == "R" or (kind in BACKWARDS and not apart)
    return stage.stash_bytes - stage.kept_bytes if again else 0.0


def _held(plan: Plan, stage: int, work: Workload) -> Held:
    """What a micro-batch of a stage keeps, receives, and gets gradients of."""
    request, layers, size = plan.request, work.layers[stage], work.schedule.microbatch_size
    again = set(plan.stages[stage].recomputed_layers)
    received = {m.made_by.stage: m.size_bytes for m in _forwards(work) if m.read_by.stage == stage}
    sent = {m.read_by.stage: m.size_bytes for m in _forwards(work) if m.made_by.stage == stage}
    return Held(
        stash_bytes=size * sum(stash_bytes_per_sample(request, layer) for layer in layers),
        kept_bytes=size * sum(kept_bytes_per_sample(request, layer, recomputed=layer.id in again) for layer in layers),
        input_bytes=sum(received.values()),
        output_bytes=sum(sent.values()),
        workspace_bytes=0.0,
    )


def _forwards(work: Workload) -> Iterator[Message]:
    """The activations of one micro-batch after the other that go from device to device."""
    for message in work.job().lowered.messages:
        if message.made_by.kind == "F" and message.source != message.target:
            yield message


def _steady(record: RankRecord) -> tuple[StepRecord, ...]:
    """The steps that count: not the very first of a run, if there are others."""
    return record.steps[1:] if len(record.steps) > 1 else record.steps


def predicted_durations(simulation: Simulation) -> Durations:
    """The medians over micro-batches and replicas."""
    operations = simulation.operations
    seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
    for stage, kind, start_s, end_s in zip(
        operations.stage, operations.kind, operations.start_s, operations.end_s, strict=True
    ):
        seconds[stage, kind].append(end_s - start_s)
    return {key: _median(values) for key, values in seconds.items()}


def _median(values: Iterable[float]) -> float:
    return float(median(values))
