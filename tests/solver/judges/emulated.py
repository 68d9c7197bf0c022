"""Plans on small boards for the emulator, and what must hold of every emulation whatever it says."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any

from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import FpgaTable
from bapipe.cost.memory import optimizer_traffic_bytes
from bapipe.emulation.emulate import Emulated
from bapipe.plan import Plan
from bapipe.problem import Cluster, Device, DeviceKind, Fpga, Layer, Link, Links, ModelProfile, PlanRequest
from judges.boards import convolution, fpga, linear, relu
from judges.instances import make_plan

LAYERS = [
    *(convolution("a", 4, 8, 16), relu("b", 128), convolution("c", 8, 8, 16), relu("d", 128)),
    *(convolution("e", 8, 4, 16), linear("f", 64, 8)),
]
STAGES = [("a", "b"), ("c", "d"), ("e", "f")]
ALL = [tuple(layer.id for layer in LAYERS)]
LINK = Link(bandwidth_bytes_per_s=20_000.0, mode="streaming", chunks=4)


def plan_on(
    board: Fpga | None = None,
    *,
    name: str = "1f1b",
    link: Link = LINK,
    microbatches: int = 4,
    share: float | None = None,
    layers: list[Layer] = LAYERS,
    stages: list[tuple[str, ...]] | None = None,
    execution: str = "async",
    **options: Any,
) -> Plan:
    """Three boards in a row, or as many replicas, mini-batches of 12."""
    board = board or fpga(on_chip_bytes=2500, off_chip_bandwidth_bytes_per_s=50_000.0)
    kind = DeviceKind.model_validate(
        {"name": "board", "memory_bytes": board.off_chip_bytes, "fpga": board, "execution": execution}
    )
    cluster = Cluster(
        kinds=(kind,),
        devices=tuple(Device(id=f"d{k}", kind="board") for k in range(3)),
        links=Links(within_host=link),
    )
    request = PlanRequest(
        profile=ModelProfile(name="chain", layers=tuple(layers)), cluster=cluster, batch_size=12, **options
    )
    if name == "data-parallel":
        return make_plan(request, stages or ALL, name, microbatches)
    made = make_plan(request, stages or STAGES, "1f1b" if name == "fbp-as" else name, microbatches)
    return forward_backward(made, share or 0.4) if name == "fbp-as" else made


def forward_backward(plan: Plan, share: float) -> Plan:
    """The plan with split boards: 2(N - i) micro-batches ahead, then backward and forward side by side."""
    assert plan.schedule is not None
    count, n = plan.schedule.num_microbatches, len(plan.stages)
    orders = []
    for s in range(n):
        ahead = min(count, 2 * (n - s))
        order = [f"{s}F{k}" for k in range(ahead)]
        for k in range(count):
            order += [f"{s}B{k}", *([f"{s}F{ahead + k}"] if ahead + k < count else [])]
        orders.append(tuple(order))
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": tuple(orders)})
    stages = tuple(stage.model_copy(update={"forward_share": share}) for stage in plan.stages)
    return plan.model_copy(update={"schedule": schedule, "stages": stages})


def conservation_faults(plan: Plan, emulated: Emulated) -> list[str]:
    """What a finished step must satisfy: bytes, layers, memory and FIFOs, counted anew from the plan."""
    report, faults = emulated.report, []
    for link in report.links:
        if link.sent_bytes != link.received_bytes:
            faults.append(f"{link.source} sent {link.sent_bytes} bytes, {link.target} received {link.received_bytes}")
        if link.fifo_depth is not None and not 0 <= link.fifo_peak <= link.fifo_depth:
            faults.append(f"{link.fifo_peak} chunks in a FIFO of {link.fifo_depth}")
    for board in report.boards:
        if board.on_chip_peak_bytes > board.on_chip_capacity_bytes:
            faults.append(f"{board.device} holds {board.on_chip_peak_bytes} bytes on chip")
        if board.off_chip_capacity_bytes is not None and board.off_chip_peak_bytes > board.off_chip_capacity_bytes:
            faults.append(f"{board.device} holds {board.off_chip_peak_bytes} bytes off chip")
    return [*faults, *_execution_faults(plan, emulated), *_traffic_faults(plan, emulated)]


def _execution_faults(plan: Plan, emulated: Emulated) -> list[str]:
    """Every micro-batch through every layer once each way, a stage after those that feed it."""
    operations = emulated.simulation.operations
    rows = list(zip(operations.stage, operations.kind, operations.microbatch, strict=True))
    assert plan.schedule is not None
    kinds = "FB" if plan.request.task == "training" else "F"
    stages, count = len(plan.stages), plan.schedule.num_microbatches
    wanted = {(s, kind, m) for s in range(stages) for kind in kinds for m in range(count)}
    faults = [f"{row} executed {times} times" for row, times in Counter(rows).items() if times != 1]
    ends = dict(zip(rows, operations.end_s, strict=True))
    faults += [f"{row} is missing" for row in wanted - set(rows)]
    for stage, kind, m in rows:
        before = {"F": (stage - 1, "F", m), "B": (stage + 1, "B", m)}[kind]
        if before in ends and ends[stage, kind, m] < ends[before]:
            faults.append(f"{(stage, kind, m)} ended before {before}")
    starts = dict(zip(rows, operations.start_s, strict=True))
    forwards = {row: (row[0], "F", row[2]) for row in rows if row[1] == "B"}
    faults += [f"{row} started before its forward ended" for row, f in forwards.items() if starts[row] < ends[f]]
    return [*faults, *_flight_faults(plan, starts, ends)]


def _flight_faults(plan: Plan, starts: dict[Any, float], ends: dict[Any, float]) -> list[str]:
    """No stage ever has more micro-batches between forward and backward than its memory was counted for."""
    faults = []
    for number, stage in enumerate(plan.stages):
        if len(stage.devices) > 1 or plan.request.task == "inference":
            continue
        assert plan.schedule is not None
        order = next(row for row in plan.schedule.orders if row and row[0].startswith(f"{number}F"))
        counted = _in_flight(order, split=stage.forward_share is not None)
        changes = [(starts[row], 1) for row in starts if row[:2] == (number, "F")]
        changes += [(ends[row], -1) for row in ends if row[:2] == (number, "B")]
        most = max(accumulate(change for _, change in sorted(changes)))
        if most > counted:
            faults.append(f"{most} micro-batches in flight on stage {number}, and memory for {counted}")
    return faults


def _traffic_faults(plan: Plan, emulated: Emulated) -> list[str]:
    """Off-chip bytes are the sum over layers, micro-batches and the update."""
    request, faults = plan.request, []
    assert plan.schedule is not None
    size, devices = plan.schedule.microbatch_size, {device.id: device for device in request.cluster.devices}
    table, layers = FpgaTable(request, size), {layer.id: layer for layer in request.profile.layers}
    boards = {board.device: board for board in emulated.report.boards}
    for number, stage in enumerate(plan.stages):
        received = layers[plan.stages[number - 1].layers[-1]].output_bytes_per_sample * size if number else 0.0
        for name in stage.devices:
            order = plan.schedule.orders[[device.id for device in request.cluster.devices].index(name)]
            forwards, backwards = (sum(text.startswith(f"{number}{kind}") for text in order) for kind in "FB")
            setting = Setting(_in_flight(order, split=stage.forward_share is not None), stage.forward_share)
            found = table.stage(stage.layers, devices[name], received, setting)
            moved = sum(optimizer_traffic_bytes(request, layers[layer]) for layer in stage.layers)
            moved += sum(f * forwards + (i + w) * backwards for f, i, w in found.off_chip_bytes)
            if abs(moved - boards[name].off_chip_traffic_bytes) > 1e-9 * moved:
                faults.append(f"{name} moved {boards[name].off_chip_traffic_bytes} bytes, its layers {moved}")
    return faults


def _in_flight(order: tuple[str, ...], *, split: bool) -> int:
    if not any("B" in text for text in order):
        return 1
    live = most = running = 0
    for text in order:
        if "F" in text:
            live += 1
        elif split:
            live, running = live - running, 1
        most = max(most, live)
        live -= "B" in text and not split
    return max(1, most)
