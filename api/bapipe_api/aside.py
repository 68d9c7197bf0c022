"""Work that a request waits for, in a process of its own: ended when its client leaves, or when the service stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from bapipe.child import CutShort, Limits
from bapipe.errors import Fault, InvalidInputError
from bapipe.replays import replay_isolated
from bapipe_api.dependencies import Service
from bapipe_api.problems import RefusedError
from bapipe_api.records import INTERNAL
from bapipe_api.waiting import watched

A = TypeVar("A", str, bytes)
R = TypeVar("R", str, bytes)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Most:
    """What such work may take, and how many of its kind are done at once."""

    seconds: float
    memory_bytes: int
    place: CapacityLimiter


async def aside(request: Request, service: Service, work: Callable[[A], R], subject: A, most: Most) -> R:
    """What `work` makes of `subject`; both have to be picklable.

    Raises:
        InvalidInputError: `work` raised it, or it takes more time or memory than it may.
        RefusedError: 503 when the service stops, or the client has left.
    """
    over = threading.Event()

    def work_aside() -> R | CutShort:
        limits = Limits(
            time.monotonic() + most.seconds, most.memory_bytes, lambda: over.is_set() or service.watcher.closed
        )
        return replay_isolated(work, subject, limits)

    async with watched(request, over.set):
        found = await to_thread.run_sync(work_aside, limiter=most.place)
    if isinstance(found, CutShort):
        raise _refusal(found)
    return found


def _refusal(cut: CutShort) -> Exception:
    if cut.cause in ("time_limit", "memory_limit"):
        return InvalidInputError([Fault("too_large", "this takes more time or memory than this service gives")])
    if cut.cause == "stopped":
        return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the service stops", {"Retry-After": "5"})
    log.error(cut.reason)
    return RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL.code, INTERNAL.detail)
