"""Waits for jobs to change: one question to the store at a time, however many wait."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress

from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from bapipe_api.store import Store

POLL_S = 0.025

log = logging.getLogger(__name__)


class Watcher:
    """Tells those who wait, in one event loop, that a job has had another event. All of it runs in that loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """Lets everybody who waits go on at once, and nobody wait any more."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether the service stops."""
        return self._closed

    async def beyond(self, job_id: str, event: int, timeout_s: float) -> bool:
        """Waits until the job has an event after `event`; False when there is none in time, or the service stops."""
        self._watched[job_id] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s), self._changed:
                    await self._changed.wait_for(lambda: self._closed or self._seen.get(job_id, 0) > event)
            return self._seen.get(job_id, 0) > event
        finally:
            self._watched[job_id] -= 1
            if self._watched[job_id] <= 0:
                del self._watched[job_id]
                self._seen.pop(job_id, None)

    async def _poll(self) -> None:
        """Asks, again and again, while anybody waits. A store that does not answer now may do so soon."""
        while self._watched:
            with suppress(SQLAlchemyError):
                found = await run_in_threadpool(self._store.last_events, list(self._watched))
                self._seen.update({job_id: event for job_id, event in found.items() if job_id in self._watched})
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(0 if self._closed else POLL_S)
