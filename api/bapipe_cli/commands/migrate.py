"""`bapipe migrate`: brings the service's store to the revision of this release."""

from __future__ import annotations

import typer

from bapipe_cli.guard import user_faults
from bapipe_cli.service_settings import DatabaseOption, migrated_database, service_settings


def migrate(database: DatabaseOption = None) -> None:
    """Bring the service's store to this release. The service does so too when it starts."""
    with user_faults(), migrated_database(service_settings(database=database)) as store:
        from bapipe_api.migrate import current

        typer.echo(f"{store.place} is at revision {current(store)}")
