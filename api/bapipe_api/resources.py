"""What the service answers with, as documented types, and how stored records become them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from bapipe.errors import Fault
from bapipe.plan import Plan, Prediction
from bapipe.simulator import Operations, Transfers
from bapipe.simulator.replay import Reduction
from bapipe_api.problems import Problem
from bapipe_api.states import State
from bapipe_api.store import Record


class PlanResource(BaseModel):
    """A plan on the service: where its search is, and its answer as soon as there is one."""

    id: str
    state: State
    created_at: datetime
    finished_at: datetime | None = None
    plan: Plan | None = None
    error: Annotated[Problem | None, Field(description="why there is no plan, or no better one")] = None


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


class Health(BaseModel):
    """That the service lives, or is ready."""

    status: str


def plan_document(record: Record) -> dict[str, Any]:
    """`record` as the JSON of a `PlanResource`. What is stored was checked: it is not checked again."""
    return {
        "id": record.id,
        "state": record.state.value,
        "created_at": _moment(record.created_at),
        "finished_at": None if record.finished_at is None else _moment(record.finished_at),
        "plan": None if record.plan is None else json.loads(record.plan),
        "error": None if record.error is None else json.loads(record.error),
    }


def plan_response(record: Record, status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(plan_document(record), status, headers)


def _moment(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")
