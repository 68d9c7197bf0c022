"""The database behind the store: SQLite or PostgreSQL, through SQLAlchemy, with the few things that differ."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, ColumnElement, Connection, Float, cast, create_engine, event, func, literal
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

BUSY_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_S = 5
CONNECTIONS, MORE_CONNECTIONS = 10, 30
WRITES = "bapipe_writes"


class UnusableStoreError(RuntimeError):
    """There can be no store at this place: the message says why."""


class StoreInUseError(UnusableStoreError):
    """Another process serves from this store."""


class Database:
    """Connections to the database at `url`. Methods block; all are thread-safe."""

    def __init__(self, url: URL) -> None:
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.url = url
        arguments = {} if self.is_sqlite else {"connect_timeout": CONNECT_TIMEOUT_S}
        self.engine = create_engine(
            url,
            connect_args=arguments,
            pool_size=CONNECTIONS,
            max_overflow=MORE_CONNECTIONS,
            pool_pre_ping=not self.is_sqlite,
            hide_parameters=True,
        )
        if self.is_sqlite:
            event.listen(self.engine, "connect", _configure_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self.writer = self.engine.execution_options(**{WRITES: True})

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def file(self) -> Path:
        """The SQLite file."""
        assert self.is_sqlite
        return Path(str(self.url.database))

    @property
    def place(self) -> str:
        """Where the database is, for people: no password."""
        return str(self.file) if self.is_sqlite else self.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads."""
        with Session(self.engine) as session, session.begin():
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that may write, and is committed at the end."""
        with Session(self.writer) as session, session.begin():
            yield session

    def now_s(self) -> ColumnElement[float]:
        """Seconds since 1970 by the one clock that all processes share: the database's."""
        if self.is_sqlite:
            return literal(time.time())
        return cast(func.extract("epoch", func.clock_timestamp()), Float(53))


def brief(error: SQLAlchemyError) -> str:
    """What went wrong in a line, without the statement."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def sole_user(database: Database) -> Iterator[None]:
    """Holds a SQLite file as this process's alone: two would each take the other's running solves for lost ones.

    Raises:
        StoreInUseError: another process has it.
        UnusableStoreError: there can be no file there.
    """
    if not database.is_sqlite:
        yield
        return
    path = database.file.with_name(database.file.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UnusableStoreError(f"{error.filename}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreInUseError(f"another process serves from this store (it holds {path})") from None
    finally:
        os.close(descriptor)


def _configure_sqlite(connection: Any, _: object) -> None:
    """Readers do not wait for a writer, and what was committed survives a power cut."""
    connection.isolation_level = None  # transactions are begun below
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes its turn at once: one that has read before it writes could not wait for another."""
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
