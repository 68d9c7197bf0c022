"""`bapipe serve`: the HTTP service, on loopback unless told otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from bapipe_cli.guard import ServerError, user_faults
from bapipe_cli.service_settings import DatabaseOption, service_settings

HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on [default: 127.0.0.1]")]
PortOption = Annotated[int | None, typer.Option("--port", help="Port to listen on, 0 for a free one [default: 8000]")]


def serve(host: HostOption = None, port: PortOption = None, database: DatabaseOption = None) -> None:
    """Serve plans over HTTP. What is not given here is read from the environment (BAPIPE_*)."""
    with user_faults():
        from bapipe_api.logs import configure_logging
        from bapipe_api.server import CannotStartError, NoKeysError, UnusableDatabaseError
        from bapipe_api.server import serve as run_service

        settings = service_settings(database=database, host=host, port=port)
        configure_logging(settings.log_format)
        try:
            run_service(settings)
        except UnusableDatabaseError as error:
            raise ServerError(f"{error}; choose another file with --database") from None
        except NoKeysError as error:
            raise ServerError(f"{error}; make one with bapipe keys create") from None
        except CannotStartError as error:
            advice = "choose another port with --port, or another address with --host"
            raise ServerError(f"{error}; {advice}") from None
        except SystemExit as ended:
            raise ServerError("the service did not start; its log above says why") from ended
