"""Runs the service with uvicorn, in one process: its solves are processes of their own."""

from __future__ import annotations

import ipaddress
import logging
import math
import sys
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from bapipe.planner import plan_isolated
from bapipe_api.app import create_app
from bapipe_api.jobs import JobEngine, Solve
from bapipe_api.settings import Settings

START_FAILED = 3
"""The exit code of a service that could not start: its port or its store is taken; its log says which."""

log = logging.getLogger(__name__)


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


def serve(settings: Settings, *, solve: Solve = plan_isolated) -> None:
    """Serves until interrupted (SIGINT, SIGTERM); searches that still run then are ended, and marked so."""
    if not _loopback(settings.host):
        log.warning("listening on %s without authentication: whoever reaches this port can use it", settings.host)
    app = create_app(settings, solve=solve)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        server_header=False,
    )
    server = _Server(config, app)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise SystemExit(START_FAILED)


def main() -> int:
    """Serves by the environment; 2 when a setting is wrong."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = Settings()
    except ValidationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    serve(settings)
    return 0


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
