"""What both clients are told once: how to reach the service and how long to wait; and what breaks in between."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import TypeVar

import httpx

from bapipe_client import _core
from bapipe_client.errors import NotAllowedError, ServiceTimeoutError, ServiceUnreachableError

H = TypeVar("H")

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "BAPIPE_API_KEY"
UNUSABLE = (httpx.InvalidURL, ImportError, OSError, ValueError)
"""What httpx raises for an address, or for a proxy or certificates of the environment, that it cannot use."""

UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, *UNUSABLE)
"""Errors that are raised before anything is sent."""

KEY = re.compile(r"[!-~]+")

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


def opened(kind: Callable[..., H], base_url: str, api_key: str | None, transport: object) -> H:
    """httpx's client of this kind.

    Raises:
        ServiceUnreachableError: it can reach nothing with this address and this environment.
        NotAllowedError: the key is none.
    """
    said = headers(api_key)
    try:
        return kind(base_url=base_url, headers=said, transport=transport)
    except UNUSABLE as error:
        raise unreachable(base_url, error) from None


def headers(api_key: str | None) -> dict[str, str]:
    """What every request says; the key is `api_key`, or that of the environment."""
    said = {"User-Agent": f"bapipe-client/{version('bapipe')}", "Accept": "application/json"}
    key = (api_key or os.environ.get(KEY_VARIABLE) or "").strip()
    if key and not KEY.fullmatch(key):
        message = f"what api_key or {KEY_VARIABLE} holds is no key: it has spaces, or characters that are not ASCII"
        raise NotAllowedError(message, HTTPStatus.UNAUTHORIZED)
    return said | ({"Authorization": f"Bearer {key}"} if key else {})


def unreachable(call: str, error: Exception) -> ServiceUnreachableError:
    """An error of httpx as one of ours."""
    kind = ServiceTimeoutError if isinstance(error, httpx.TimeoutException) else ServiceUnreachableError
    hint = "; is the service there?" if isinstance(error, httpx.ConnectError) else ""
    message = f"{_core.without_password(call)}: {error or type(error).__name__}{hint}"
    return kind(message, may_have_arrived=not isinstance(error, UNSENT))
