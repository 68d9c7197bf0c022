"""Server-sent events, line by line, and where to go on after the connection broke."""

from __future__ import annotations

import json
from http import HTTPStatus

import httpx

from bapipe.errors import InvalidInputError
from bapipe.faults import parse, parse_json
from bapipe_client import _core
from bapipe_client._retries import RetryPolicy
from bapipe_client.errors import ServiceError, UnexpectedResponseError
from bapipe_client.models import ProgressEvent


class EventReader:
    """The events of one job over as many connections as it takes."""

    def __init__(self) -> None:
        self.finished = False
        self._last_id = ""
        self._fields: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        """What the next connection asks with."""
        resume = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return {"Accept": "text/event-stream", **resume}

    def feed(self, line: str) -> ProgressEvent | None:
        """The event that `line` completes, if it does."""
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        self._last_id = fields.get("id", self._last_id)
        self.finished = fields.get("event") == "end"
        return _event(fields["data"], self._last_id)

    def broken(self) -> None:
        """The connection broke: what had come of an event is forgotten."""
        self._fields = {}


class Following:
    """Whether to go on with a stream of events that ended before the job did, and after how long."""

    def __init__(self, retries: RetryPolicy) -> None:
        self._retries = retries
        self._attempt = 0
        self._outcome: httpx.Response | ServiceError | None = None

    def ended(self, response: httpx.Response) -> bool:
        """Whether there is nothing more to come.

        Raises:
            ServiceError: the service refuses for good.
        """
        self._outcome = response
        error = _core.error_of(response)
        if error is not None and not _core.may_retry(response):
            raise error
        return response.status_code == HTTPStatus.NO_CONTENT

    def went_on(self) -> None:
        """An event came: the connection works."""
        self._attempt = 0

    def broke(self, error: ServiceError) -> None:
        self._outcome = error

    def pause_s(self) -> float:
        """Seconds before the next try.

        Raises:
            ServiceError: there were tries enough.
        """
        outcome = self._outcome
        wait_s = self._retries.wait_s(self._attempt, None if outcome is None else _core.asked_wait_s(outcome))
        self._attempt += 1
        if wait_s is not None:
            return wait_s
        error = outcome if isinstance(outcome, ServiceError) else outcome and _core.error_of(outcome)
        raise error or UnexpectedResponseError("the service ends its events before the job has ended")


def _event(data: str, sequence: str) -> ProgressEvent:
    try:
        values = parse_json(data.encode())
        return parse(ProgressEvent, {**values, "sequence": int(sequence)})
    except (InvalidInputError, TypeError, ValueError):
        raise UnexpectedResponseError(f"an event that this client cannot read: {json.dumps(data[:200])}") from None
