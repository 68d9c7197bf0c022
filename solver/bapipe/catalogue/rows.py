"""What each schedule costs in a setting, simulated, beside its formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bapipe.catalogue.entries import ENTRIES, Entry
from bapipe.catalogue.setting import Setting
from bapipe.orders import operation
from bapipe.plan import Plan
from bapipe.simulator import Simulation, simulate
from bapipe.simulator.occupancy import Held, peak_of_device


@dataclass(frozen=True)
class Row:
    """One schedule in one setting. Seconds are of M micro-batches: the step or, without a flush, the period.

    `free_s`: were transfers free; `formula_s`, `free_formula_s`: by the formula, None where it does not hold.
    `in_flight`: of each device, most micro-batches in flight, in its part of the model. `link_share`: the part of the
    time that the busiest direction of a link is busy.
    """

    entry: Entry
    plan: Plan
    simulation: Simulation
    seconds: float
    free_s: float
    formula_s: float | None
    free_formula_s: float | None
    bubble_fraction: float
    in_flight: tuple[float, ...]
    peak_memory_bytes: tuple[float, ...]
    link_share: float


def rows(setting: Setting, entries: Sequence[Entry] = ENTRIES) -> list[Row]:
    """The schedules that can be built in `setting`."""
    return [_row(entry, setting) for entry in entries if entry.possible(setting)]


def _row(entry: Entry, setting: Setting) -> Row:
    plan, free = entry.make(setting), replace(setting, transfer_s=0.0)
    simulation, free_plan = simulate(plan), entry.make(free)
    seconds = simulation.pace_s
    busy_s = sum(simulation.busy_s)
    return Row(
        entry=entry,
        plan=plan,
        simulation=simulation,
        seconds=seconds,
        free_s=simulate(free_plan).pace_s,
        formula_s=entry.seconds(setting) if entry.holds(setting) else None,
        free_formula_s=entry.seconds(free) if entry.holds(free) else None,
        bubble_fraction=max(0.0, 1 - busy_s / (setting.stages * seconds)) if seconds else 0.0,
        in_flight=tuple(in_flight(plan, number) for number in range(setting.stages)),
        peak_memory_bytes=simulation.peak_memory_bytes,
        link_share=max((use.busy_s for use in simulation.links), default=0.0) / seconds if seconds else 0.0,
    )


def in_flight(plan: Plan, number: int) -> float:
    """Most micro-batches in flight on a device, each counted as the part that it is of what the device has."""
    assert plan.schedule is not None
    device = plan.request.cluster.devices[number].id
    stages = [stage for stage in plan.stages if device in stage.devices]
    if plan.schedule.weight_versions is not None:
        return plan.schedule.weight_versions[stages[0].index]
    held = Held(1 / len(stages), 1 / len(stages), 0.0, 0.0, 0.0)
    order = list(map(operation, plan.schedule.orders[number]))
    engines = 1 if stages[0].forward_share is None else 2
    return peak_of_device(
        order, {stage.index: held for stage in stages}, 0.0, "in_flight", training=True, engines=engines
    )
