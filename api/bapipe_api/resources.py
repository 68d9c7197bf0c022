"""What the service answers with, as documented types, and how stored records become them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field

from bapipe.errors import Fault
from bapipe.plan import Plan, Prediction
from bapipe.simulator import Operations, Transfers
from bapipe.simulator.replay import Reduction
from bapipe_api.problems import Problem
from bapipe_api.records import Record
from bapipe_api.states import State


class PlanSummary(BaseModel):
    """A plan on the service: where its search is. `attempts`: how often it was begun."""

    id: str
    state: State
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0


class PlanResource(PlanSummary):
    """A plan on the service: where its search is, and its answer as soon as there is one."""

    plan: Plan | None = None
    error: Annotated[Problem | None, Field(description="why there is no plan, or no better one")] = None


class PlanPage(BaseModel):
    """Plans, newest first. `next_page_token` asks for those after them; it is absent on the last page."""

    plans: tuple[PlanSummary, ...]
    next_page_token: str | None = None


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


class Validation(BaseModel):
    """That a request can be planned, and what a plan for it would assume."""

    assumptions: tuple[str, ...]


class Health(BaseModel):
    """That the service lives, or is ready."""

    status: str


def summary(record: Record) -> dict[str, Any]:
    """`record` as the JSON of a `PlanSummary`."""
    return {
        "id": record.id,
        "state": record.state.value,
        "created_at": _moment(record.created_at),
        "started_at": _moment(record.started_at),
        "finished_at": _moment(record.finished_at),
        "attempts": record.attempt,
    }


def plan_document(record: Record) -> str:
    """`record` as the JSON of a `PlanResource`. What is stored was checked: it is not read again."""
    head = json.dumps(summary(record))
    return f'{head[:-1]}, "plan": {record.result or "null"}, "error": {record.error or "null"}}}'


def plan_response(record: Record, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The plan with its entity tag: the same bytes have the same one."""
    content = plan_document(record).encode()
    tag = {"ETag": entity_tag(content)} if status == 200 else {}
    return Response(content, status, {**tag, **(headers or {})}, "application/json")


def tagged_response(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """`content`, or 304 without it for a client that has it already (`If-None-Match`)."""
    all_headers = {"ETag": entity_tag(content), **(headers or {})}
    if _matches(request.headers.get("if-none-match", ""), all_headers["ETag"]):
        return Response(None, 304, all_headers)
    return Response(content, 200, all_headers, media_type)


def entity_tag(content: bytes) -> str:
    """A strong validator: a hash of the bytes."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _matches(condition: str, tag: str) -> bool:
    """By the weak comparison, as RFC 9110 has it for `If-None-Match`."""
    given = [part.strip().removeprefix("W/") for part in condition.split(",")]
    return tag in given or "*" in given


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat().replace("+00:00", "Z")
