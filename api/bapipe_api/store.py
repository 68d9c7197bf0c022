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

from sqlalchemy import DateTime, Text, create_engine, delete, event, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator

from bapipe_api.states import State

BUSY_TIMEOUT_MS = 10_000


class UnusableStoreError(RuntimeError):
    """There can be no store at this place: the message says why."""


class StoreInUseError(UnusableStoreError):
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
    """A plan: its request, and its answer as soon as there is one. JSON is kept as the text that was checked.

    A request is dropped when the answer embeds it, and when nobody waits for one.
    """

    __tablename__ = "plans"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    state: Mapped[str] = mapped_column(Text, index=True)
    created_at: Mapped[datetime] = mapped_column(Utc)
    finished_at: Mapped[datetime | None] = mapped_column(Utc, index=True)
    request: Mapped[str] = mapped_column(Text)
    plan: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)


class CheckRow(Base):
    """When the store was last found to take a write: one row."""

    __tablename__ = "checks"

    id: Mapped[int] = mapped_column(primary_key=True)
    checked_at: Mapped[datetime] = mapped_column(Utc)


@dataclass(frozen=True)
class Record:
    """A row, detached: `plan` and `error` are JSON texts."""

    id: str
    state: State
    created_at: datetime
    finished_at: datetime | None = None
    plan: str | None = None
    error: str | None = None


class Store:
    """Plans in a SQLite file, which is this process's alone while it is open. Methods block; all are thread-safe."""

    def __init__(self, url: str, *, keep_plans: int) -> None:
        """Opens the file, or makes it. The last `keep_plans` finished plans are kept, older ones deleted.

        Raises:
            StoreInUseError: another process has it open.
            UnusableStoreError: there can be no file there, or it is something else.
        """
        self._keep_plans = keep_plans
        self._engine = create_engine(url)
        event.listen(self._engine, "connect", _configure)
        path = Path(str(self._engine.url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise UnusableStoreError(f"{error.filename}: {error.strerror}") from None
        try:
            Base.metadata.create_all(self._engine)
            self.check()
        except SQLAlchemyError as error:
            self.close()
            raise UnusableStoreError(f"{path}: {getattr(error, 'orig', None) or error}") from None

    def close(self) -> None:
        self._engine.dispose()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def check(self) -> None:
        """Does nothing when the store can be read and written, and raises SQLAlchemy's error when not."""
        with self._session() as session:
            session.execute(select(PlanRow.id).limit(1))
            session.execute(select(PlanRow).limit(0))
            session.merge(CheckRow(id=1, checked_at=datetime.now(UTC)))

    def add(self, record: Record, request: str) -> None:
        """A new plan, whose search waits for its turn."""
        row = PlanRow(id=record.id, state=record.state, created_at=record.created_at, request=request)
        with self._session() as session:
            session.add(row)

    def start(self, plan_id: str) -> None:
        """The plan's search begins."""
        with self._session() as session:
            session.get_one(PlanRow, plan_id).state = State.RUNNING

    def finish(self, record: Record) -> None:
        """The plan's last state, and its answer or what went wrong. May be told twice."""
        with self._session() as session:
            row = session.get_one(PlanRow, record.id)
            row.state, row.plan, row.error, row.finished_at = (
                record.state,
                record.plan,
                record.error,
                record.finished_at,
            )
            if record.plan is not None or record.state == State.CANCELLED:
                row.request = ""
            session.flush()
            self._forget_oldest(session)

    def get(self, plan_id: str) -> Record | None:
        with self._session() as session:
            row = session.get(PlanRow, plan_id)
            return None if row is None else _record(row)

    def fail_interrupted(self, error: str) -> int:
        """Marks every plan that has no last state as failed, and says how many: for the start of the service."""
        change = update(PlanRow).where(PlanRow.state.in_((State.QUEUED, State.RUNNING)))
        with self._session() as session:
            result = session.execute(change.values(state=State.FAILED, error=error, finished_at=datetime.now(UTC)))
            self._forget_oldest(session)
            return int(getattr(result, "rowcount", 0))

    def _forget_oldest(self, session: Session) -> None:
        """SQLite uses the room again: the file does not grow beyond what the plans that are kept need."""
        newest_first = select(PlanRow.id).where(PlanRow.finished_at.is_not(None)).order_by(PlanRow.finished_at.desc())
        surplus = newest_first.offset(self._keep_plans)
        session.execute(delete(PlanRow).where(PlanRow.id.in_(surplus)).execution_options(synchronize_session=False))

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
