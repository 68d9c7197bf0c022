"""Jobs as a client follows them, over plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

UNFINISHED = ("queued", "running", "cancelling")
WAIT = {"Prefer": "wait=60"}


def finished(http: httpx.Client, location: str) -> dict[str, Any]:
    """The job at `location` once it has ended."""
    document: dict[str, Any] = http.get(location, headers=WAIT).raise_for_status().json()
    assert document["state"] not in UNFINISHED
    return document


def events(
    http: httpx.Client, location: str, *, last: str | None = None, enough: Callable[[Any], bool] = lambda data: False
) -> list[tuple[int, str, str]]:
    """The events that are sent, until one is enough: number, type, data."""
    headers = {} if last is None else {"Last-Event-ID": last}
    found = []
    with http.stream("GET", f"{location}/events", headers=headers) as response:
        if response.status_code == 204:
            return []
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line and "data" in fields:
                found.append((int(fields["id"]), fields["event"], fields["data"]))
                fields = {}
                if enough(json.loads(found[-1][2])):
                    break
    return found
