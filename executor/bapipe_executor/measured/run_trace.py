"""A measured step as a trace, in the form of the trace of a simulated one, to be laid beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bapipe.orders import OPERATION
from bapipe.plan import Plan
from bapipe.simulator import Operations, Simulation, Transfers, simulate
from bapipe.trace import chrome_trace
from bapipe_executor.measured.records import RankRecord, StepRecord


def run_trace(plan: Plan, ranks: Sequence[RankRecord]) -> str:
    """The last step in the Trace Event Format: when operations were executed. Transfers are not measured."""
    return chrome_trace(plan, _measured(simulate(plan), {record.device: record.steps[-1] for record in ranks}))


def _measured(simulation: Simulation, steps: dict[str, StepRecord]) -> Simulation:
    origin_s = min(step.whole.start_s for step in steps.values())
    rows = [
        (device, found, timed)
        for device, name in enumerate(simulation.devices)
        for timed in steps[name].operations
        if (found := OPERATION.fullmatch(timed.name))
    ]
    operations = Operations(
        device=tuple(device for device, _, _ in rows),
        stage=tuple(int(found[1]) for _, found, _ in rows),
        kind=tuple(found[2] for _, found, _ in rows),
        microbatch=tuple(int(found[3]) for _, found, _ in rows),
        start_s=tuple(timed.start_s - origin_s for _, _, timed in rows),
        end_s=tuple(timed.end_s - origin_s for _, _, timed in rows),
    )
    last_s = [max(timed.end_s for timed in steps[name].operations) - origin_s for name in simulation.devices]
    return replace(
        simulation,
        step_time_s=max(step.whole.end_s for step in steps.values()) - origin_s,
        operations=operations,
        transfers=Transfers((), (), (), (), (), ()),
        reductions=(),
        optimizer_start_s=tuple(last_s),
        optimizer_end_s=tuple(steps[name].whole.end_s - origin_s for name in simulation.devices),
    )
