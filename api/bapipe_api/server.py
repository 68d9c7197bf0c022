"""Runs the service with uvicorn, in one process: its solves are processes of their own."""

from __future__ import annotations

import gc
import math
import socket
import sys
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from bapipe_api.access import may_listen
from bapipe_api.app import create_app
from bapipe_api.connections import timed_protocol
from bapipe_api.database import Database, UnusableStoreError, sole_user
from bapipe_api.dependencies import Service
from bapipe_api.keys import Keys
from bapipe_api.logs import configure_logging
from bapipe_api.migrate import migrate
from bapipe_api.settings import Settings
from bapipe_api.work import Tasks

WRONG_SETTING = 2
START_FAILED = 6
"""The exit code of a service that could not start: its port or its store is taken; its log says which."""

KEEP_ALIVE_S = 75
"""How long a connection may be silent between two requests: longer than a load balancer keeps it, which would else send
a request into a connection that is being closed.
"""


class CannotStartError(Exception):
    """The service cannot start with these settings: the message says why, the type says what to change."""


class UnusableDatabaseError(CannotStartError):
    """`database_url` names what is no store, or no store for this process."""


class UnusableAddressError(CannotStartError):
    """Nothing can listen on `host` and `port`."""


class NoKeysError(CannotStartError):
    """Other machines could use the service without a key."""


ADVICE: dict[type[CannotStartError], str] = {
    UnusableDatabaseError: "set BAPIPE_DATABASE_URL to another file",
    UnusableAddressError: "set BAPIPE_HOST or BAPIPE_PORT to another address",
    NoKeysError: "make a key with `bapipe keys create`, or set BAPIPE_HOST to 127.0.0.1",
}


class _Server(uvicorn.Server):
    """Puts jobs back into the queue as soon as it is told to stop, and answers whoever waits for one."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service: Service | None = getattr(self._app.state, "service", None)
        if service is not None:
            service.watcher.close()
            service.engine.stop()
        super().handle_exit(sig, frame)


def serve(settings: Settings, *, tasks: Tasks | None = None) -> None:
    """Serves until interrupted (SIGINT, SIGTERM); jobs that still run then wait for the next start.

    Raises:
        CannotStartError: the store or the address cannot be used.
        SystemExit: it did not start for another reason, which its log says.
    """
    check_can_start(settings)
    app = create_app(settings, tasks=tasks)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        timeout_keep_alive=KEEP_ALIVE_S,
        server_header=False,
        http=timed_protocol(settings.header_timeout_s),
        ws="none",
        log_config=None,
    )
    server = _Server(config, app)
    _spare_collections()
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise SystemExit(START_FAILED)


def _spare_collections() -> None:
    """What is loaded by now stays for good; looking through it for garbage would hold up every request for 70 ms."""
    gc.collect()
    gc.freeze()


def main() -> int:
    """Serves by the environment; 2 when a setting is wrong, 6 when the service cannot start."""
    try:
        settings = Settings()
        configure_logging(settings.log_format)
        serve(settings)
    except ValidationError as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_SETTING
    except CannotStartError as error:
        sys.stderr.write(f"bapipe: {error}; {ADVICE[type(error)]}\n")
        return START_FAILED
    return 0


def check_can_start(settings: Settings) -> None:
    """Looks at what may be missing or taken, so that the answer is a line and not the log of a failed start.

    Raises:
        CannotStartError: the store, the address, or the keys for it are not there.
    """
    try:
        with Database(settings.url) as database, sole_user(database):
            migrate(database)
            guarded = may_listen(settings, Keys(database))
    except UnusableStoreError as error:
        raise UnusableDatabaseError(str(error)) from None
    if not guarded:
        raise NoKeysError(f"without keys nothing but this machine is served, and {settings.host} is not this machine")
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
