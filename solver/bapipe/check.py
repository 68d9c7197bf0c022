"""Is this plan legal for its request? Everything is worked out again from the request; no solver is involved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from bapipe.constraints import constraint_faults, named_order_faults
from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.memory import usable_bytes
from bapipe.cost.pipeline import stage_loads_s
from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe.simulator import Simulation, simulate
from bapipe.structure import structure_faults

RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12


def check(plan: Plan, simulation: Simulation | None = None) -> list[Fault]:
    """Every fault of `plan`, with pointers into it; none for a legal plan, nor for one that says `infeasible`.

    Orders are looked at only where the structure is sound, figures and memory only where the orders can be executed.
    `simulation` is the plan's, where there is one already.
    """
    if plan.status == "infeasible":
        return []
    unsound = structure_faults(plan)
    faults = [*unsound, *constraint_faults(plan)]
    if unsound or plan.schedule is None:
        return faults
    try:
        simulation = simulation or simulate(plan)
    except InvalidInputError as error:
        return [*faults, *error.faults]
    faults += [*named_order_faults(plan, plan.schedule), *_memory_faults(plan, simulation)]
    return [*faults, *_figure_faults(plan, simulation), *_proof_faults(plan)]


def _memory_faults(plan: Plan, simulation: Simulation) -> Iterator[Fault]:
    cluster = plan.request.cluster
    devices = {device.id: device for device in cluster.devices}
    peaks = dict(zip(simulation.devices, simulation.peak_memory_bytes, strict=True))
    first = {device: s for s, stage in reversed(list(enumerate(plan.stages))) for device in stage.devices}
    for s, stage in enumerate(plan.stages):
        for k, device in enumerate(stage.devices):
            if first[device] < s:
                continue
            limit = memory_limit_bytes(cluster, devices[device])
            if limit is not None and peaks[device] > usable_bytes(limit):
                detail = f"{peaks[device]:.0f} bytes at the peak of device {device!r}, which has {limit}"
                yield Fault("out_of_memory", detail, f"/stages/{s}/devices/{k}")


def _figure_faults(plan: Plan, simulation: Simulation) -> Iterator[Fault]:
    """Declared figures that are not what the simulator finds."""
    for s, actual in enumerate(stage_figures(plan, simulation)):
        declared = plan.stages[s].model_dump(include=set(actual))
        yield from _differences(declared, actual, f"/stages/{s}")
    if plan.prediction is not None:
        actual = simulation.prediction(plan.request).model_dump()
        yield from _differences(plan.prediction.model_dump(), actual, "/prediction")


def stage_figures(plan: Plan, simulation: Simulation) -> Iterator[dict[str, Any]]:
    """What the simulator finds of each stage, by field."""
    cluster = plan.request.cluster
    devices = {device.id: device for device in cluster.devices}
    peaks = dict(zip(simulation.devices, simulation.peak_memory_bytes, strict=True))
    loads = stage_loads_s(simulation.cost, plan.request.communication)
    for stage, load_s in zip(simulation.cost.stages, loads, strict=True):
        limits = [memory_limit_bytes(cluster, devices[device]) for device in stage.devices]
        yield {
            "forward_s": stage.forward_s,
            "backward_s": stage.backward_s,
            "load_s": load_s,
            "peak_memory_bytes": max(peaks[device] for device in stage.devices),
            "memory_limit_bytes": min((limit for limit in limits if limit is not None), default=None),
        }


def _differences(declared: Any, actual: Any, pointer: str) -> Iterator[Fault]:
    """A `wrong_value` for each leaf of two JSON-like values that differs; numbers within the tolerances are equal."""
    if isinstance(actual, dict):
        for key, value in actual.items():
            yield from _differences(declared[key], value, f"{pointer}/{key}")
    elif isinstance(actual, tuple):
        if len(declared) != len(actual):
            yield Fault("wrong_length", f"{len(declared)} items where there are {len(actual)}", pointer)
        for k, (one, other) in enumerate(zip(declared, actual, strict=False)):
            yield from _differences(one, other, f"{pointer}/{k}")
    elif not _equal(declared, actual):
        yield Fault("wrong_value", f"{declared!r} is declared, and {actual!r} found", pointer)


def _equal(declared: Any, actual: Any) -> bool:
    if isinstance(declared, int | float) and isinstance(actual, int | float):
        return math.isclose(declared, actual, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    return bool(declared == actual)


def _proof_faults(plan: Plan) -> Iterator[Fault]:
    """A bound above what the plan reaches cannot be one; the gap follows from both, and the status from the gap."""
    bound_s, gap, prediction = plan.proof.lower_bound_s, plan.proof.gap, plan.prediction
    tolerance = max(RELATIVE_TOLERANCE, plan.proof.tolerance)
    if prediction is None or plan.request.objective not in ("step-time", "bottleneck"):
        return
    value_s = (plan.pace_s or 0.0) if plan.request.objective == "step-time" else prediction.bottleneck_s
    if bound_s is not None and bound_s > value_s * (1 + tolerance):
        detail = f"a lower bound of {bound_s:g} s, and the plan reaches {value_s:g} s"
        yield Fault("wrong_bound", detail, "/proof/lower_bound_s")
    left = None if bound_s is None else max(0.0, 1 - bound_s / value_s) if value_s else 0.0
    if gap is not None and (left is None or abs(gap - left) > tolerance):
        detail = f"a gap of {gap:g}, where bound and plan leave {'none' if left is None else format(left, 'g')}"
        yield Fault("wrong_bound", detail, "/proof/gap")
    if plan.status == "optimal" and (left is None or left > tolerance):
        yield Fault("wrong_bound", "called optimal, which its bound does not prove", "/status")
