"""What the service answers with, as documented types, and how stored records become them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field

from bapipe.emulation import EmulationReport
from bapipe.plan import Plan
from bapipe.replays import SimulationResult
from bapipe_api.problems import Problem
from bapipe_api.records import Record
from bapipe_api.states import State


class JobSummary(BaseModel):
    """A job on the service: where it is. `attempts`: how often it was begun."""

    id: str
    state: State
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0


class PlanResource(JobSummary):
    """A plan on the service: where its search is, and its answer as soon as there is one."""

    plan: Plan | None = None
    error: Annotated[Problem | None, Field(description="why there is no plan, or no better one")] = None


class SimulationResource(JobSummary):
    """A simulation on the service, with its answer as soon as there is one."""

    simulation: SimulationResult | None = None
    error: Annotated[Problem | None, Field(description="why there is none")] = None


class EmulationResource(JobSummary):
    """An emulation on the service, with its answer as soon as there is one."""

    emulation: EmulationReport | None = None
    error: Annotated[Problem | None, Field(description="why there is none")] = None


class Page(BaseModel):
    """Jobs, newest first. `next_page_token` asks for those after them; it is absent on the last page."""

    next_page_token: str | None = None


class PlanPage(Page):
    """Plans, newest first. `next_page_token` asks for those after them; it is absent on the last page."""

    plans: tuple[JobSummary, ...]


class SimulationPage(Page):
    """Simulations, newest first, as plans are listed."""

    simulations: tuple[JobSummary, ...]


class EmulationPage(Page):
    """Emulations, newest first, as plans are listed."""

    emulations: tuple[JobSummary, ...]


class Validation(BaseModel):
    """That a request can be planned, and what a plan for it would assume."""

    assumptions: tuple[str, ...]


class Health(BaseModel):
    """That the service lives, or is ready."""

    status: str


def summary(record: Record) -> dict[str, Any]:
    """`record` as the JSON of a `JobSummary`."""
    return {
        "id": record.id,
        "state": record.state.value,
        "created_at": _moment(record.created_at),
        "started_at": _moment(record.started_at),
        "finished_at": _moment(record.finished_at),
        "attempts": record.attempt,
    }


def document(record: Record) -> bytes:
    """`record` with its answer as JSON. What is stored was checked: it is not read again."""
    head = json.dumps(summary(record))
    return f'{head[:-1]}, "{record.kind}": {record.result or "null"}, "error": {record.error or "null"}}}'.encode()


def job_response(record: Record, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The job with its entity tag: the same bytes have the same one."""
    content = document(record)
    tag = {"ETag": entity_tag(content)} if status == 200 else {}
    return Response(content, status, {**tag, **(headers or {})}, "application/json")


def tagged_job(request: Request, record: Record, headers: Mapping[str, str]) -> Response:
    """The job, or 304 without it for a client that has it already."""
    return tagged_response(request, document(record), "application/json", headers)


def tagged_response(
    request: Request, content: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """`content`, or 304 without it for a client that has it already (`If-None-Match`)."""
    all_headers = {"ETag": entity_tag(content), **(headers or {})}
    if has_already(request, all_headers["ETag"]):
        return Response(None, 304, all_headers)
    return Response(content, 200, all_headers, media_type)


def entity_tag(content: bytes) -> str:
    """A strong validator: a hash of the bytes."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def has_already(request: Request, tag: str) -> bool:
    """Whether the client has what has this tag: by the weak comparison, as RFC 9110 has it for `If-None-Match`."""
    condition = request.headers.get("if-none-match", "")
    given = [part.strip().removeprefix("W/") for part in condition.split(",")]
    return tag in given or "*" in given


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat().replace("+00:00", "Z")
