"""HTTP connections that are closed when a request's headers do not arrive in time."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from bapipe.errors import Fault
from bapipe_api.problems import problem_response


class TimedProtocol(H11Protocol):
    """uvicorn's connection, which would wait for ever for the first request, and for the rest of one that has begun.

    A body that is waited for has a limit of its own (`bodies.py`), and so has the silence after an answer (uvicorn).
    """

    header_timeout_s: float
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused as everything else is."""
        fault = Fault("not_http", "this is no HTTP request that can be read")
        refusal = problem_response(HTTPStatus.BAD_REQUEST, [fault], {"Connection": "close"})
        begin = h11.Response(status_code=refusal.status_code, headers=refusal.raw_headers, reason=b"Bad Request")
        for event in (begin, h11.Data(data=bytes(refusal.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """While no request is being answered, the time runs from the first byte on, however many follow."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._due is None:
            self._due = self.loop.call_later(self.header_timeout_s, self.transport.close)

    def _unwatch(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def timed_protocol(header_timeout_s: float) -> type[TimedProtocol]:
    """The protocol with this limit, in seconds: uvicorn makes its connections itself, from a class."""
    return type("TimedProtocol", (TimedProtocol,), {"header_timeout_s": header_timeout_s})
