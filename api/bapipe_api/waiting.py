"""A request that waits for its job, for as long as its client does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from bapipe_api.dependencies import Service
from bapipe_api.records import Record

LOOK_EVERY_S = 1.0
"""How often it is looked for an ending that the store does not take."""


class ClientLeftError(Exception):
    """The client has closed its connection."""


async def until_finished(request: Request, service: Service, record: Record, wait_s: float) -> Record:
    """The job as it is when it has ended, when `wait_s` are over, or when the service stops.

    Raises:
        ClientLeftError: the client has left.
    """
    if record.finished or wait_s <= 0:
        return record
    gone = asyncio.create_task(_disconnected(request))
    waiting = asyncio.create_task(_waited(service, record, wait_s))
    try:
        await asyncio.wait((gone, waiting), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        raise ClientLeftError
    finally:
        gone.cancel()
        waiting.cancel()


@asynccontextmanager
async def watched(request: Request, gone: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `gone` when the client leaves meanwhile."""

    async def watch() -> None:
        await _disconnected(request)
        gone()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def _waited(service: Service, record: Record, wait_s: float) -> Record:
    deadline_s = time.monotonic() + wait_s
    while not record.finished:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or service.watcher.closed:
            break
        if await service.watcher.beyond(record.id, record.last_event, min(left_s, LOOK_EVERY_S)):
            found = await run_in_threadpool(service.store.get, record.id, None, record.kind)
            record = found or record
        record = service.engine.overlay(record)
    return record


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
