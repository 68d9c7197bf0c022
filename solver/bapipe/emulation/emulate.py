"""Emulates one step of a plan on its boards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.fpga.table import costs_by_shape
from bapipe.cost.memory import usable_bytes
from bapipe.emulation.flows import flow_of, with_losses
from bapipe.emulation.limits import order_faults, size_faults
from bapipe.emulation.measure import measured
from bapipe.emulation.options import EmulationOptions, option_faults, with_slow_boards
from bapipe.emulation.report import EmulationReport
from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe.simulator import Simulation, replay_faults
from bapipe.simulator.event_simulation import Prepared, prepare, simulation_of
from bapipe.simulator.flow import Flowed, replay_flow


@dataclass(frozen=True)
class Emulated:
    """A step on its boards: the report, and the replay for pictures and for the order in which things end."""

    report: EmulationReport
    simulation: Simulation
    flowed: Flowed


def emulate(plan: Plan, options: EmulationOptions | None = None) -> Emulated:
    """Replays one step of `plan` with finite FIFOs, shared memory ports and the faults of `options`.

    Raises:
        InvalidInputError: every fault of plan and options; `not_an_fpga`, `not_by_shape` for devices whose costs are
            not worked out from shapes; `fifo_too_small` for a FIFO that holds no chunk; `out_of_memory`; `deadlock`.
    """
    options = options or EmulationOptions()
    faults, schedule = emulation_faults(plan, options), plan.schedule
    if faults or schedule is None:
        raise InvalidInputError(faults)
    cluster = with_slow_boards(plan.request.cluster, options)
    run = plan.model_copy(update={"request": plan.request.model_copy(update={"cluster": cluster})})
    ready = prepare(run, schedule)
    flow, faults = flow_of(ready.work, ready.job, options)
    faults += size_faults(flow, ready.job)
    if faults:
        raise InvalidInputError(faults)
    job = with_losses(ready.work, ready.job, options)
    flowed = replay_flow(job, flow, ready.pointer)
    step_s = max(flowed.replayed.optimizer_end_s)
    simulation = simulation_of(ready.work, ready.cost, flowed.job, flowed.replayed, step_s)
    faults = list(_memory_faults(ready, simulation))
    if faults:
        raise InvalidInputError(faults)
    return Emulated(measured(plan, ready.work, flow, flowed, simulation, options), simulation, flowed)


def emulation_faults(plan: Plan, options: EmulationOptions) -> list[Fault]:
    """What keeps a step from being emulated, as far as that shows without replaying it.

    Pointers are into the plan or, for boards that are not there, into the options.
    """
    faults = [*option_faults(options, plan.request.cluster), *_board_faults(plan)]
    if plan.schedule is None:
        detail = "an infeasible plan has no step to emulate; see its explanation"
        return [*faults, Fault("infeasible", detail, "/status")]
    if plan.schedule.weight_versions is not None:
        detail = "emulation is of a step with a flush; plan without pipedream"
        faults.append(Fault("unsupported", detail, "/schedule/weight_versions"))
    return [*faults, *replay_faults(plan)]


def _board_faults(plan: Plan) -> Iterator[Fault]:
    yield from order_faults(plan)
    request = plan.request
    used = {name for stage in plan.stages for name in stage.devices}
    kinds = {device.kind for device in request.cluster.devices if device.id in used}
    for k, kind in enumerate(request.cluster.kinds):
        pointer = f"/request/cluster/kinds/{k}"
        if kind.name not in kinds:
            continue
        if kind.fpga is None:
            detail = f"device kind {kind.name!r} is no FPGA; say what it has under fpga, or simulate the plan instead"
            yield Fault("not_an_fpga", detail, f"{pointer}/fpga")
        elif not costs_by_shape(request, kind):
            detail = f"the times of {kind.name!r} were measured, and emulation works from shapes; leave times out"
            yield Fault("not_by_shape", detail, "/request/profile/layers")
        elif (fifo_bytes := kind.fpga.fifo_bytes) is not None and fifo_bytes < request.profile.bytes_per_parameter:
            detail = (
                f"a FIFO of {fifo_bytes} bytes holds no number of {request.profile.bytes_per_parameter} bytes; "
                "make it larger, or leave it out for one without limit"
            )
            yield Fault("fifo_too_small", detail, f"{pointer}/fpga/fifo_bytes")


def _memory_faults(ready: Prepared, simulation: Simulation) -> Iterator[Fault]:
    """Boards that hold more than they have off chip."""
    cluster = ready.work.plan.request.cluster
    for d, device in enumerate(ready.work.placed):
        limit, peak = memory_limit_bytes(cluster, device), simulation.peak_memory_bytes[d]
        if limit is not None and peak > usable_bytes(limit):
            stage = ready.work.stages_on(d)[0]
            detail = (
                f"{peak:.0f} bytes at the peak of board {device.id!r}, whose memory off chip has {limit}; "
                "use smaller micro-batches, fewer layers on it, or more boards"
            )
            yield Fault("out_of_memory", detail, f"/stages/{stage}/devices")
