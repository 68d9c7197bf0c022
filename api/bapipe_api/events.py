"""The events of a job as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from bapipe_api.database import brief
from bapipe_api.records import Event
from bapipe_api.store import Store
from bapipe_api.watching import Watcher

EVERY_S = 1.0
"""The least time between two events; the last one is not kept waiting."""

SILENCE_S = 15.0
"""After so long a comment is sent, so that nobody on the way takes the connection for dead."""

RETRY_MS = 2000

log = logging.getLogger(__name__)

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="the `id` of the last event that was received: only later ones are sent"),
]


async def _last_event(last_event_id: LastEventId = None) -> int:
    """The number of the last event that the client has; what is none counts as 0."""
    return int(last_event_id) if last_event_id and last_event_id.isdecimal() and len(last_event_id) < 10 else 0


LastEvent = Annotated[int, Depends(_last_event)]


async def event_stream(store: Store, watcher: Watcher, job_id: str, after: int) -> AsyncIterator[str]:
    """The newest event whenever there is one after `after`, until the job's last event, or the service stops.

    It ends, too, when the store does not answer: its client comes back, and is told so.
    """
    yield f"retry: {RETRY_MS}\n\n"
    sent_s = float("-inf")
    while not watcher.closed:
        event = await _newest(store, job_id)
        if event is None:
            return
        wait_s = EVERY_S - (time.monotonic() - sent_s)
        if event.sequence > after and (event.final or wait_s <= 0):
            yield _frame(event)
            after, sent_s = event.sequence, time.monotonic()
        if event.final:
            return
        if event.sequence > after:
            await _pause(watcher, job_id, event.sequence, wait_s)
        elif not await watcher.beyond(job_id, after, SILENCE_S):
            yield ": nothing new\n\n"


async def _newest(store: Store, job_id: str) -> Event | None:
    try:
        return await run_in_threadpool(store.newest_event, job_id)
    except SQLAlchemyError as error:
        log.warning("events end, the store does not answer: %s", brief(error), extra={"job_id": job_id})
        return None


async def _pause(watcher: Watcher, job_id: str, seen: int, wait_s: float) -> None:
    """Until the next event may be sent. A newer one, which may be the last, is looked at sooner."""
    if await watcher.beyond(job_id, seen, max(wait_s, 0.0)):
        await asyncio.sleep(0)


def _frame(event: Event) -> str:
    return f"id: {event.sequence}\nevent: {'end' if event.final else 'progress'}\ndata: {event.data}\n\n"
