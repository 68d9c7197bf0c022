"""The settings of the service, for the commands that start or keep it; what is wrong with them is wrong usage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bapipe_cli.guard import ServerError, user_faults

if TYPE_CHECKING:
    from bapipe_api.database import Database
    from bapipe_api.settings import Settings

DatabaseOption = Annotated[
    Path | None, typer.Option("--database", help="SQLite file that keeps the plans [default: ./bapipe.sqlite3]")
]


def service_settings(*, database: Path | None, **given: Any) -> Settings:
    """The settings of the environment (BAPIPE_*), but for those that are given here.

    Raises:
        typer.BadParameter: with every setting that is wrong.
    """
    from pydantic import ValidationError

    from bapipe_api.settings import Settings

    given["database_url"] = None if database is None else f"sqlite:///{database.resolve()}"
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        lines = (f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in error.errors())
        raise typer.BadParameter("; ".join(lines)) from None


@contextmanager
def migrated_database(settings: Settings) -> Iterator[Database]:
    """The store of the service, brought to the revision of this release.

    Raises:
        ServerError: it cannot be used.
    """
    from bapipe_api.database import Database, UnusableStoreError
    from bapipe_api.migrate import migrate

    with user_faults(), Database(settings.url) as database:
        try:
            migrate(database)
        except UnusableStoreError as error:
            raise ServerError(f"{error}; set BAPIPE_DATABASE_URL or --database to the service's store") from None
        yield database
