"""The tables of the store. `migrations/` makes them; a test holds the two against each other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Float, ForeignKey, Index, Integer, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
"""How indexes and constraints are called: the same on every database, so that a migration can name them."""


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

    metadata = MetaData(naming_convention=NAMES)


class ResultRow(Base):
    """An answer, as the JSON text that was checked. Jobs that asked for the same share it."""

    __tablename__ = "results"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    document: Mapped[str] = mapped_column(Text)


class JobRow(Base):
    """A job: what was asked, who asked, where it stands, who works on it. The one truth about it.

    `request` is dropped when the answer embeds it, as a plan does, and when nobody waits for one. A worker holds the
    job while `lease_token` is its own, until `lease_until` (seconds of the database's clock since 1970; None: for as
    long as the process lives). `attempt` counts how often the job was begun, `last_event` its events. `kept_bytes` is
    the length of what is kept of one that has ended: its answer, and `request`.
    """

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text)
    owner: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Utc)
    started_at: Mapped[datetime | None] = mapped_column(Utc)
    finished_at: Mapped[datetime | None] = mapped_column(Utc)
    request: Mapped[str] = mapped_column(Text)
    cache_key: Mapped[str | None] = mapped_column(Text)
    result_id: Mapped[str | None] = mapped_column(ForeignKey("results.id"))
    error: Mapped[str | None] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(Integer)
    worker: Mapped[str | None] = mapped_column(Text)
    lease_token: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[float | None] = mapped_column(Float(53))
    last_event: Mapped[int] = mapped_column(Integer)
    kept_bytes: Mapped[int] = mapped_column(BigInteger, server_default="0")

    __table_args__ = (
        Index(None, "owner", "created_at", "id"),
        Index(None, "state", "created_at"),
        Index(None, "kind", "finished_at", "id", "result_id", "kept_bytes"),
        Index(None, "cache_key"),
        Index(None, "result_id"),
    )


class EventRow(Base):
    """What became of a job, in order: `sequence` counts from 1 without gaps."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    data: Mapped[str] = mapped_column(Text)


class IdempotencyRow(Base):
    """The job that a request with this `Idempotency-Key` made; `body_hash` is of the request's body."""

    __tablename__ = "idempotency"

    owner: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    body_hash: Mapped[str] = mapped_column(Text)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)


class KeyRow(Base):
    """A key of the service: the hash of its secret, and what it allows. `scopes` are separated by spaces."""

    __tablename__ = "keys"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    secret_hash: Mapped[str] = mapped_column(Text)
    scopes: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(Utc)
    revoked_at: Mapped[datetime | None] = mapped_column(Utc)


class WorkerRow(Base):
    """A worker process, and when it was last heard of (seconds of the database's clock since 1970)."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    seen_s: Mapped[float] = mapped_column(Float(53))


class CheckRow(Base):
    """When the store was last found to take a write: one row."""

    __tablename__ = "checks"

    id: Mapped[int] = mapped_column(primary_key=True)
    checked_at: Mapped[datetime] = mapped_column(Utc)
