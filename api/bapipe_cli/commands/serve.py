"""`bapipe serve`: the HTTP service, on loopback unless told otherwise."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from bapipe_cli.guard import ServerError, user_faults

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
        from bapipe_api.server import UnusableAddressError, UnusableDatabaseError
        from bapipe_api.server import serve as run_service
        from bapipe_api.settings import Settings

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        try:
            settings = Settings(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise typer.BadParameter(_sentence(error)) from None
        try:
            run_service(settings)
        except UnusableDatabaseError as error:
            raise ServerError(f"{error}; choose another file with --database") from None
        except UnusableAddressError as error:
            advice = "choose another port with --port, or another address with --host"
            raise ServerError(f"{error}; {advice}") from None
        except SystemExit as ended:
            raise ServerError("the service did not start; its log above says why") from ended


def _sentence(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in error.errors())
