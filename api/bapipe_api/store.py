"""The store: every plan that was asked for, its state, and its answer, in SQLite through SQLAlchemy."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import DateTime, Text, create_engine, event, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator

from bapipe_api.states import State

BUSY_TIMEOUT_MS = 10_000


class StoreInUseError(RuntimeError):
    """Another process serves from this store."""


class Utc(TypeDecorator[datetime]):
    """A moment in UTC; SQLite keeps no time zone."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    """The tables."""


class PlanRow(Base):
    """A plan: its request, and its answer as soon as there is one. JSON is kept as the text that was checked."""

    __tablename__ = "plans"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    state: Mapped[str] = mapped_column(Text, index=True)
    created_at: Mapped[datetime] = mapped_column(Utc)
    finished_at: Mapped[datetime | None] = mapped_column(Utc)
    request: Mapped[str] = mapped_column(Text)
    plan: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)


@dataclass(frozen=True)
class Record:
    """A row, detached: `plan` and `error` are JSON texts."""

    id: str
    state: State
    created_at: datetime
    finished_at: datetime | None
    plan: str | None
    error: str | None


class Store:
    """Plans in a SQLite file, which is this process's alone while it is open. Methods block; all are thread-safe."""

    def __init__(self, url: str) -> None:
        """Opens the file, or makes it.

        Raises:
            StoreInUseError: another process has it open.
        """
        self._engine = create_engine(url)
        event.listen(self._engine, "connect", _configure)
        path = Path(str(self._engine.url.database))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path.with_name(path.name + ".lock"))
        Base.metadata.create_all(self._engine)

    def close(self) -> None:
        self._engine.dispose()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def check(self) -> None:
        """Does nothing when the store can be read, and raises SQLAlchemy's error when not."""
        with self._session() as session:
            session.execute(select(PlanRow.id).limit(1))

    def add(self, plan_id: str, request: str) -> Record:
        """A new plan, whose search waits for its turn."""
        row = PlanRow(id=plan_id, state=State.QUEUED, created_at=datetime.now(UTC), request=request)
        with self._session() as session:
            session.add(row)
            session.flush()
            return _record(row)

    def start(self, plan_id: str) -> None:
        """The plan's search begins."""
        with self._session() as session:
            session.get_one(PlanRow, plan_id).state = State.RUNNING

    def finish(self, plan_id: str, state: State, *, plan: str | None, error: str | None) -> Record:
        """The plan's last state, and its answer or what went wrong."""
        with self._session() as session:
            row = session.get_one(PlanRow, plan_id)
            row.state, row.plan, row.error, row.finished_at = state, plan, error, datetime.now(UTC)
            return _record(row)

    def get(self, plan_id: str) -> Record | None:
        with self._session() as session:
            row = session.get(PlanRow, plan_id)
            return None if row is None else _record(row)

    def fail_interrupted(self, error: str) -> int:
        """Marks every plan that has no last state as failed, and says how many: for the start of the service."""
        change = update(PlanRow).where(PlanRow.state.in_((State.QUEUED, State.RUNNING)))
        with self._session() as session:
            result = session.execute(change.values(state=State.FAILED, error=error, finished_at=datetime.now(UTC)))
            return int(getattr(result, "rowcount", 0))

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with Session(self._engine) as session, session.begin():
            yield session


def _record(row: PlanRow) -> Record:
    return Record(row.id, State(row.state), row.created_at, row.finished_at, row.plan, row.error)


def _configure(connection: Any, _: object) -> None:
    """Readers do not wait for a writer, and what was committed survives a power cut."""
    for pragma in ("journal_mode = WAL", "synchronous = FULL", f"busy_timeout = {BUSY_TIMEOUT_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _lock(path: Path) -> int:
    """Holds `path` locked until the process ends, however it ends.

    Two processes on one file would each take the other's running solves for interrupted ones.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUseError(f"another process serves from this store (it holds {path})") from None
    return descriptor
