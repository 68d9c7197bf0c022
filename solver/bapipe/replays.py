"""Plans simulated and emulated as documents: from JSON to JSON, in a process that can be ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pydantic import BaseModel

from bapipe.check import check
from bapipe.child import CutShort, Limits, Send, run_in_child
from bapipe.emulation import EmulationOptions, EmulationRequest
from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import parse, parse_json
from bapipe.plan import Plan, Prediction
from bapipe.simulator import Operations, Transfers, simulate
from bapipe.simulator.replay import Reduction

MODULES = ("bapipe.replays", "bapipe.emulation.emulate", "bapipe.exports")
"""What replays import: to be imported once for all of their processes."""

A = TypeVar("A", str, bytes)
R = TypeVar("R", str, bytes)
Replay = Callable[[str], str]
"""From the JSON of what is asked to the JSON of the answer. Raises `InvalidInputError` for what cannot be replayed."""


class Timeline(BaseModel):
    """A step, event by event, in columns: entry k of each column of `operations` is one operation.

    `device`, `source` and `target` are indices of `devices`, the devices in use, stage by stage; the optimizer's
    columns have an entry for each of them.
    """

    devices: tuple[str, ...]
    operations: Operations
    transfers: Transfers
    reductions: tuple[Reduction, ...]
    optimizer_start_s: tuple[float, ...]
    optimizer_end_s: tuple[float, ...]


class SimulationResult(BaseModel):
    """What a plan costs, when what happens, and what of the plan is not as it says or may be."""

    prediction: Prediction
    timeline: Timeline
    faults: tuple[Fault, ...]


def replay_isolated(replay: Callable[[A], R], asked: A, limits: Limits) -> R | CutShort:
    """What `replay` makes of `asked` in a process of its own, or why it was cut short.

    Raises:
        InvalidInputError: `replay` raised it.
    """
    found = run_in_child(partial(_answered, replay, asked), limits, name="the replay")
    if isinstance(found, InvalidInputError):
        raise found
    return found


def simulation_json(plan_json: str) -> str:
    """The JSON of a plan's `SimulationResult`."""
    plan = _plan(plan_json)
    simulation = simulate(plan)
    timeline = Timeline(
        devices=simulation.devices,
        operations=simulation.operations,
        transfers=simulation.transfers,
        reductions=simulation.reductions,
        optimizer_start_s=simulation.optimizer_start_s,
        optimizer_end_s=simulation.optimizer_end_s,
    )
    faults = tuple(check(plan, simulation))
    return SimulationResult(
        prediction=simulation.prediction(plan.request), timeline=timeline, faults=faults
    ).model_dump_json()


def exported(form: str, plan_json: str) -> str:
    """A plan in one of the forms of `bapipe.exports`."""
    from bapipe.exports import EXPORTS

    return EXPORTS[form].write(_plan(plan_json))


simulation_trace: Replay = partial(exported, "trace")
"""The simulated step of a plan for Perfetto or chrome://tracing."""


def emulation_json(request_json: str) -> str:
    """The JSON of the `EmulationReport` of an `EmulationRequest`."""
    from bapipe.emulation.emulate import emulate

    asked = _emulation(request_json)
    try:
        return emulate(asked.plan, asked.options).report.model_dump_json()
    except InvalidInputError as error:
        raise InvalidInputError(located(error.faults)) from None


def emulation_trace(request_json: str) -> str:
    """The emulated step of an `EmulationRequest` for Perfetto or chrome://tracing."""
    from bapipe.emulation.emulate import emulate
    from bapipe.trace import chrome_trace

    asked = _emulation(request_json)
    return chrome_trace(asked.plan, emulate(asked.plan, asked.options).simulation)


def located(faults: Iterable[Fault]) -> list[Fault]:
    """Faults of an emulation with their places in its request: among its options, or in its plan."""
    options = tuple(f"/{name}" for name in EmulationOptions.model_fields)
    return [
        replace(fault, pointer=("/options" if fault.pointer.startswith(options) else "/plan") + fault.pointer)
        for fault in faults
    ]


def _answered(replay: Callable[[A], R], asked: A, send: Send) -> R | InvalidInputError:
    """What the child does: there is nothing to send before the end."""
    del send
    try:
        return replay(asked)
    except InvalidInputError as error:
        return error


def _plan(plan_json: str) -> Plan:
    return parse(Plan, parse_json(plan_json))


def _emulation(request_json: str) -> EmulationRequest:
    return parse(EmulationRequest, parse_json(request_json))
