"""Brings a database to the revision of this release, and says whether it is there."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from bapipe_api.database import Database, UnusableStoreError, brief

SCRIPTS = Path(__file__).parent / "migrations"
LOCK = 0x6261_7069_7065
"""The advisory lock under which PostgreSQL is migrated: one process at a time."""


def head() -> str:
    """The revision of this release."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def current(database: Database) -> str | None:
    """The revision of the database; None before its first migration."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def migrate(database: Database, revision: str = "head") -> None:
    """Brings the database up to `revision`, whatever it was; other processes that try the same wait.

    Raises:
        UnusableStoreError: it cannot be reached, or is something else than a store of this or an earlier release.
    """
    try:
        if database.is_sqlite:
            database.file.parent.mkdir(parents=True, exist_ok=True)
        with database.writer.begin() as connection:
            if not database.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            _refuse_others(connection, database.place)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except OSError as error:
        raise UnusableStoreError(f"{error.filename}: {error.strerror}") from None
    except SQLAlchemyError as error:
        raise UnusableStoreError(f"{database.place}: {brief(error)}") from None


def _refuse_others(connection: Connection, place: str) -> None:
    revision = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise UnusableStoreError(f"{place}: its revision {revision} is of a later release than this one")
    if revision is None and "jobs" in inspect(connection).get_table_names():
        raise UnusableStoreError(f"{place}: it holds tables of another program")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config
