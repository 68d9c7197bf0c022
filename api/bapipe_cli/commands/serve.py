"""`bapipe serve`: the HTTP service, on loopback unless told otherwise."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from bapipe_cli.guard import ServerError, user_faults

if TYPE_CHECKING:
    from bapipe_api.settings import Settings

HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on [default: 127.0.0.1]")]
PortOption = Annotated[int | None, typer.Option("--port", help="Port to listen on, 0 for a free one [default: 8000]")]
DatabaseOption = Annotated[
    Path | None, typer.Option("--database", help="SQLite file that keeps the plans [default: ./bapipe.sqlite3]")
]


def serve(host: HostOption = None, port: PortOption = None, database: DatabaseOption = None) -> None:
    """Serve plans over HTTP. What is not given here is read from the environment (BAPIPE_*)."""
    given: dict[str, Any] = {"host": host, "port": port}
    given["database_url"] = None if database is None else f"sqlite:///{database.resolve()}"
    with user_faults():
        from bapipe_api.server import serve as run_service
        from bapipe_api.settings import Settings

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        try:
            settings = Settings(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise typer.BadParameter(_sentence(error)) from None
        _check_can_start(settings)
        try:
            run_service(settings)
        except SystemExit as ended:
            raise ServerError("the service did not start; its log above says why") from ended


def _check_can_start(settings: Settings) -> None:
    """Looks at what another program may hold, so that the answer is a line and not the log of a failed start.

    Raises:
        ServerError: the address or the store cannot be used.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from bapipe_api.app import create_app
    from bapipe_api.store import StoreInUseError

    async def start_and_stop() -> None:
        app = create_app(settings)
        async with app.router.lifespan_context(app):
            pass

    try:
        asyncio.run(start_and_stop())
    except StoreInUseError as error:
        raise ServerError(f"{error}; stop it, or choose another file with --database") from None
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error)
        raise ServerError(f"{settings.database_url}: {reason}; choose another file with --database") from None
    try:
        _bind(settings.host, settings.port)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        advice = "choose another port with --port, or another address with --host"
        raise ServerError(f"cannot listen on {where}: {error.strerror or error}; {advice}") from None


def _bind(host: str, port: int) -> None:
    """Listens there as the service will, and stops."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _sentence(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in error.errors())
