"""Reads bodies: small ones in this process, large ones in a process of their own, bounded in time and memory.

Every wrong item of an array is a fault, and takes 2 kB and 40 µs until it is known that there are too many to list.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from anyio import to_thread
from fastapi import Request
from pydantic import BaseModel

from bapipe_api.aside import Most, aside
from bapipe_api.dependencies import Places, Service
from bapipe_api.problems import RefusedError
from bapipe_api.settings import Settings

SMALL_VALUES = 50_000
"""So many values are read here: a network of some hundred layers."""

MOST_WAITING = 8
"""So many large ones are held in memory while another is read."""

RETRY_AFTER_S = 5
MOST_SECONDS = 60.0
MOST_MEMORY_BYTES = 2**29

ReadBody = Callable[[bytes, Settings], BaseModel]
"""What is asked for in a body. Raises `InvalidInputError` with every fault."""


async def read_body(
    request: Request, body: bytes, read: Callable[[bytes], str], service: Service, places: Places
) -> str:
    """What `read`, which has to be picklable, makes of the body.

    Raises:
        InvalidInputError: with every fault of the body; or it is too much to be read.
        RefusedError: 503 when too many large ones wait for each other, or when the service stops meanwhile.
    """
    if body.count(b",") < SMALL_VALUES:
        return await to_thread.run_sync(read, body, limiter=places.bodies)
    if places.large_bodies.statistics().tasks_waiting >= MOST_WAITING:
        detail = "as many large bodies wait to be read as may; try again later"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", detail, {"Retry-After": str(RETRY_AFTER_S)})
    return await aside(request, service, read, body, Most(MOST_SECONDS, MOST_MEMORY_BYTES, places.large_bodies))


def canonical(read: ReadBody, settings: Settings) -> Callable[[bytes], str]:
    """Reads a body into canonical JSON: equal requests are then equal, however they were written."""
    return partial(_canonical, read, settings)


def _canonical(read: ReadBody, settings: Settings, body: bytes) -> str:
    return read(body, settings).model_dump_json()
