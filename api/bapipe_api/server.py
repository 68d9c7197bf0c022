"""Runs the service with uvicorn, in one process: its solves are processes of their own."""

from __future__ import annotations

import ipaddress
import logging
import math
import socket
import sys
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from bapipe_api.app import create_app
from bapipe_api.connections import timed_protocol
from bapipe_api.jobs import JobEngine, Solve
from bapipe_api.settings import Settings
from bapipe_api.store import Store, UnusableStoreError

WRONG_SETTING = 2
START_FAILED = 6
"""The exit code of a service that could not start: its port or its store is taken; its log says which."""

log = logging.getLogger(__name__)


class CannotStartError(Exception):
    """The service cannot start with these settings: the message says why, the type says what to change."""


class UnusableDatabaseError(CannotStartError):
    """`database_url` names what is no store, or no store for this process."""


class UnusableAddressError(CannotStartError):
    """Nothing can listen on `host` and `port`."""


ADVICE: dict[type[CannotStartError], str] = {
    UnusableDatabaseError: "set BAPIPE_DATABASE_URL to another file",
    UnusableAddressError: "set BAPIPE_HOST or BAPIPE_PORT to another address",
}


class _Server(uvicorn.Server):
    """Ends searches as soon as it is told to stop, so that whoever waits for one is still answered."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        engine: JobEngine | None = getattr(self._app.state, "engine", None)
        if engine is not None:
            engine.stop()
        super().handle_exit(sig, frame)


def serve(settings: Settings, *, solve: Solve | None = None) -> None:
    """Serves until interrupted (SIGINT, SIGTERM); searches that still run then are ended, and marked so.

    Raises:
        CannotStartError: the store or the address cannot be used.
        SystemExit: it did not start for another reason, which its log says.
    """
    _check_can_start(settings)
    if not _loopback(settings.host):
        log.warning("listening on %s without authentication: whoever reaches this port can use it", settings.host)
    app = create_app(settings, solve=solve)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        server_header=False,
        http=timed_protocol(settings.header_timeout_s),
        ws="none",
    )
    server = _Server(config, app)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise SystemExit(START_FAILED)


def main() -> int:
    """Serves by the environment; 2 when a setting is wrong, 6 when the service cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        serve(Settings())
    except ValidationError as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_SETTING
    except CannotStartError as error:
        sys.stderr.write(f"bapipe: {error}; {ADVICE[type(error)]}\n")
        return START_FAILED
    return 0


def _check_can_start(settings: Settings) -> None:
    """Looks at what another program may hold, so that the answer is a line and not the log of a failed start."""
    try:
        Store(settings.database_url, keep_plans=settings.keep_plans).close()
    except UnusableStoreError as error:
        raise UnusableDatabaseError(str(error)) from None
    try:
        _bind(settings.host, settings.port)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise UnusableAddressError(f"cannot listen on {where}: {error.strerror or error}") from None


def _bind(host: str, port: int) -> None:
    """Listens there as the service will, and stops."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
