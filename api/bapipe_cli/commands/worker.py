"""`bapipe worker`: a process that does the service's searches, beside others on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bapipe_cli.guard import ServerError, user_faults
from bapipe_cli.service_settings import service_settings

if TYPE_CHECKING:
    from bapipe_api.settings import Settings

SlotsOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="Searches at a time [default: the number of cores]")
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Only say, by the exit code, whether a worker of this machine is heard of.")
]


def worker(concurrency: SlotsOption = None, check: CheckOption = False) -> None:
    """Search the plans that are asked of a service on the PostgreSQL database in BAPIPE_DATABASE_URL.

    Told to stop (SIGTERM, Ctrl-C), it puts its searches back into the queue, where other workers find them.
    """
    with user_faults():
        settings = service_settings(database=None, max_concurrent_solves=concurrency)
        if not settings.distributed:
            detail = "a worker needs the service's PostgreSQL database; on SQLite the service does the searches itself"
            raise typer.BadParameter(detail, param_hint="BAPIPE_DATABASE_URL")
        _check(settings) if check else _run(settings)


def _run(settings: Settings) -> None:
    from bapipe_api.database import UnusableStoreError
    from bapipe_api.logs import configure_logging
    from bapipe_api.worker import run_worker

    configure_logging(settings.log_format)
    try:
        run_worker(settings)
    except UnusableStoreError as error:
        raise ServerError(f"{error}; set BAPIPE_DATABASE_URL to the service's database") from None


def _check(settings: Settings) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    from bapipe_api.database import Database
    from bapipe_api.worker import is_heard_of

    try:
        with Database(settings.url) as database:
            heard = is_heard_of(settings, database)
    except SQLAlchemyError:
        raise ServerError("the database does not answer") from None
    if not heard:
        raise ServerError(f"no worker of this machine was heard of in the last {settings.lease_s:g} s")
