"""What both clients are told once: how to reach the service and how long to wait; and what breaks in between."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version

import httpx

from bapipe_client import _core
from bapipe_client.errors import ServiceTimeoutError, ServiceUnreachableError

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "BAPIPE_API_KEY"
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
"""httpx's errors that are raised before anything is sent."""

EVENTS_SILENCE_S = 60.0
"""So long may nothing come of a stream of events, in which there is a comment every few seconds."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds to connect, and to wait for an answer; a job has its own time on top of that."""

    connect_s: float
    read_s: float

    def of(self, call: _core.Call) -> httpx.Timeout:
        return httpx.Timeout(self.read_s, connect=self.connect_s, read=self.read_s + call.wait_s)

    def of_events(self) -> httpx.Timeout:
        return httpx.Timeout(self.read_s, connect=self.connect_s, read=EVENTS_SILENCE_S)


def headers(api_key: str | None) -> dict[str, str]:
    """What every request says; the key is `api_key`, or that of the environment."""
    said = {"User-Agent": f"bapipe-client/{version('bapipe')}", "Accept": "application/json"}
    key = api_key or os.environ.get(KEY_VARIABLE)
    return said | ({"Authorization": f"Bearer {key}"} if key else {})


def unreachable(call: str, error: Exception) -> ServiceUnreachableError:
    """An error of httpx as one of ours."""
    kind = ServiceTimeoutError if isinstance(error, httpx.TimeoutException) else ServiceUnreachableError
    message = f"{call}: {error or type(error).__name__}"
    return kind(message, may_have_arrived=not isinstance(error, UNSENT))
