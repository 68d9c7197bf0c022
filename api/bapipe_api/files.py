"""What jobs have found as files: each is written in a process of its own, for as long as its client waits for it."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from bapipe.replays import Replay
from bapipe_api.aside import Most, aside
from bapipe_api.dependencies import Places, Service
from bapipe_api.kinds import Kind
from bapipe_api.problems import RefusedError
from bapipe_api.records import Record
from bapipe_api.resources import tagged_response
from bapipe_api.settings import Settings
from bapipe_api.states import State


async def made(
    request: Request, record: Record, write: Replay, service: Service, settings: Settings, places: Places
) -> bytes:
    """What `write` makes of a plan that was found or, for other jobs, of what was asked.

    Raises:
        RefusedError: 409 when nothing was found, or nothing yet; 503 when the service stops, or the client has left.
        InvalidInputError: it takes more time or memory than this service gives.
    """
    subject = await run_in_threadpool(_subject, service, record)
    most = Most(settings.max_time_limit_s, settings.max_search_memory_bytes, places.files)
    return (await aside(request, service, write, subject, most)).encode()


def attachment(request: Request, content: bytes, media_type: str, name: str) -> Response:
    """A file that a browser keeps, and runs nothing of beside its own scripts."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox allow-scripts",
    }
    return tagged_response(request, content, media_type, headers)


def _subject(service: Service, record: Record) -> str:
    if record.result is None:
        detail = f"it is {record.state}: there is no {record.kind}" + ("" if record.finished else " yet")
        raise RefusedError(HTTPStatus.CONFLICT, f"no_{record.kind}", detail)
    if record.state == State.INFEASIBLE:
        raise RefusedError(HTTPStatus.CONFLICT, "no_plan", "nothing fits: there is no plan to be written")
    return record.result if record.kind == Kind.PLAN else service.store.request_of(record.id)
