"""What is too large for this service, though it may be right: said in faults, like everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bapipe.emulation import EmulationRequest
from bapipe.emulation.emulate import emulation_faults
from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import parse, parse_json
from bapipe.plan import Plan
from bapipe.planner import validate
from bapipe.problem import PlanRequest
from bapipe.replays import located
from bapipe.simulator import replay_faults
from bapipe_api.settings import Settings

MAX_OBJECTS = 500_000


def read_request(body: bytes, settings: Settings) -> PlanRequest:
    """The request in `body`: right in itself, within this service's limits, and one that can be searched.

    Raises:
        InvalidInputError: with every fault.
    """
    request = parse(PlanRequest, _read_json(body))
    _refuse(_request_faults(request, settings))
    validate(request)
    return request


def read_simulation(body: bytes, settings: Settings) -> Plan:
    """The plan in `body`: right in itself, within this service's limits, and one that can be replayed.

    Raises:
        InvalidInputError: with every fault.
    """
    plan = parse(Plan, _read_json(body))
    _refuse(_plan_faults(plan, settings))
    _refuse(replay_faults(plan))
    return plan


def read_emulation(body: bytes, settings: Settings) -> EmulationRequest:
    """The plan and the faults to emulate in `body`, as `read_simulation` reads a plan.

    Raises:
        InvalidInputError: with every fault.
    """
    asked = parse(EmulationRequest, _read_json(body))
    _refuse(located(_plan_faults(asked.plan, settings)))
    _refuse(located(emulation_faults(asked.plan, asked.options)))
    return asked


def check_size(body: bytes) -> None:
    """Refuses a document of so many objects that checking each one would take minutes."""
    if body.count(b"{") > MAX_OBJECTS:
        raise InvalidInputError([Fault("too_large", f"more than {MAX_OBJECTS} objects in one document")])


def _read_json(body: bytes) -> Any:
    check_size(body)
    return parse_json(body)


def _refuse(faults: Iterable[Fault]) -> None:
    found = list(faults)
    if found:
        raise InvalidInputError(found)


def _request_faults(request: PlanRequest, settings: Settings) -> Iterator[Fault]:
    layers, devices = len(request.profile.layers), len(request.cluster.devices)
    if layers * devices > settings.max_layers_times_devices:
        detail = (
            f"{layers} layers × {devices} devices are more than the {settings.max_layers_times_devices} that this "
            "service takes; merge layers, or plan for fewer devices"
        )
        yield Fault("too_large", detail, "/profile/layers")
    if request.time_limit_s > settings.max_time_limit_s:
        detail = f"{request.time_limit_s:g} s is more than the {settings.max_time_limit_s:g} s that this service allows"
        yield Fault("too_large", detail, "/time_limit_s")


def _plan_faults(plan: Plan, settings: Settings) -> Iterator[Fault]:
    operations, most = sum(map(len, plan.schedule.orders)) if plan.schedule else 0, settings.max_simulated_operations
    if operations > most:
        detail = (
            f"{operations} operations are more than the {settings.max_simulated_operations} that are simulated here"
        )
        yield Fault("too_large", detail, "/schedule/orders")
