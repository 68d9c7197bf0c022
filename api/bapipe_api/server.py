"""Runs the service with uvicorn, in one process: its solves are processes of their own."""

from __future__ import annotations

import ipaddress
import logging
import math
import sys

import uvicorn
from pydantic import ValidationError

from bapipe.planner import plan_isolated
from bapipe_api.app import create_app
from bapipe_api.jobs import Solve
from bapipe_api.settings import Settings

log = logging.getLogger(__name__)


def serve(settings: Settings, *, solve: Solve = plan_isolated) -> None:
    """Serves until interrupted (SIGINT, SIGTERM); searches that still run then are ended, and marked so."""
    if not _loopback(settings.host):
        log.warning("listening on %s without authentication: whoever reaches this port can use it", settings.host)
    uvicorn.run(
        create_app(settings, solve=solve),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
        server_header=False,
    )


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
