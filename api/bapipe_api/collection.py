"""The jobs of each kind as HTTP has them: what is asked for where, in which words, and how its body is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from bapipe.replays import Replay, emulation_trace, simulation_trace
from bapipe_api.kinds import Kind
from bapipe_api.limits import read_emulation, read_request, read_simulation
from bapipe_api.openapi import EMULATION, PLAN_REQUEST, SIMULATION
from bapipe_api.reading import ReadBody
from bapipe_api.resources import (
    EmulationPage,
    EmulationResource,
    JobSummary,
    PlanPage,
    PlanResource,
    SimulationPage,
    SimulationResource,
)


@dataclass(frozen=True)
class Collection:
    """All jobs of one kind. `work` names what a job does, `asks` and `about` say what one is asked for.

    `trace` makes a trace of the answer where that embeds what was asked, otherwise of what was asked.
    """

    kind: Kind
    work: str
    asks: str
    about: str
    resource: type[JobSummary]
    page: type[BaseModel]
    body: dict[str, Any]
    read: ReadBody
    trace: Replay

    @property
    def path(self) -> str:
        """Where they are."""
        return f"/v1/{self.kind}s"

    @property
    def one(self) -> str:
        """One of them, in words."""
        return f"an {self.kind}" if self.kind.startswith("e") else f"a {self.kind}"


PLANS = Collection(
    kind=Kind.PLAN,
    work="search",
    asks="Search the best plan",
    about="Searches a plan",
    resource=PlanResource,
    page=PlanPage,
    body=PLAN_REQUEST,
    read=read_request,
    trace=simulation_trace,
)

SIMULATIONS = Collection(
    kind=Kind.SIMULATION,
    work="simulation",
    asks="Simulate a plan",
    about="Replays one step of the plan, from its layers, devices and orders; the figures that it declares are not "
    "read. Refuses a plan that cannot be replayed; what else is wrong with it, such as too little memory or figures "
    "that are not the simulated ones, is in the `faults` of the answer, with pointers into the plan. This is done",
    resource=SimulationResource,
    page=SimulationPage,
    body=SIMULATION,
    read=read_simulation,
    trace=simulation_trace,
)

EMULATIONS = Collection(
    kind=Kind.EMULATION,
    work="emulation",
    asks="Emulate a plan on its FPGAs",
    about="Replays one step of the plan part by part, with finite FIFOs, shared memory ports and the faults asked for. "
    "Refuses a plan whose devices are no FPGAs, or whose layers do not say what they compute. This is done",
    resource=EmulationResource,
    page=EmulationPage,
    body=EMULATION,
    read=read_emulation,
    trace=emulation_trace,
)
