"""What jobs have found as files: each is written in a process of its own, for as long as its client waits for it."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from http import HTTPStatus

from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from bapipe.child import CutShort, Limits
from bapipe.errors import Fault, InvalidInputError
from bapipe.replays import Replay, replay_isolated
from bapipe_api.dependencies import Service
from bapipe_api.kinds import Kind
from bapipe_api.problems import RefusedError
from bapipe_api.records import INTERNAL, Record
from bapipe_api.resources import tagged_response
from bapipe_api.settings import Settings
from bapipe_api.states import State
from bapipe_api.waiting import watched

log = logging.getLogger(__name__)


async def made(
    request: Request, record: Record, write: Replay, service: Service, settings: Settings, readers: CapacityLimiter
) -> bytes:
    """What `write` makes of a plan that was found or, for other jobs, of what was asked.

    Raises:
        RefusedError: 409 when nothing was found, or nothing yet; 503 when the service stops, or the client has left.
        InvalidInputError: it takes more time or memory than this service gives.
    """
    subject = await run_in_threadpool(_subject, service, record)
    over = threading.Event()
    limits = Limits(
        time.monotonic() + settings.max_time_limit_s,
        settings.max_search_memory_bytes,
        lambda: over.is_set() or service.watcher.closed,
    )
    async with watched(request, over.set):
        found = await to_thread.run_sync(partial(replay_isolated, write, subject, limits), limiter=readers)
    if isinstance(found, CutShort):
        raise _refusal(found)
    return found.encode()


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


def _refusal(cut: CutShort) -> Exception:
    if cut.cause in ("time_limit", "memory_limit"):
        return InvalidInputError([Fault("too_large", "it takes more time or memory to write than this service gives")])
    if cut.cause == "stopped":
        return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the service stops", {"Retry-After": "5"})
    log.error(cut.reason)
    return RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL.code, INTERNAL.detail)
