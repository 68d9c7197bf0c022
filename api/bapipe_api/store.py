"""The store as the service's routes use it: jobs are submitted, read, listed and cancelled."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar

from sqlalchemy import func, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from bapipe_api.changes import change, end, event_of, job, record_of
from bapipe_api.database import Database
from bapipe_api.kinds import Kind
from bapipe_api.records import Event, Record, cancelled, event_json
from bapipe_api.settings import Keep
from bapipe_api.states import PROVEN, UNFINISHED, State
from bapipe_api.tables import CheckRow, EventRow, IdempotencyRow, JobRow, ResultRow

Origin = Literal["new", "cache", "replay"]
T = TypeVar("T")

TOKEN = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]{8,15}\+00:00) ([0-9a-f]{32})")
"""What a page token says: when a job was made, and its id."""


class BusyError(Exception):
    """As many jobs are unfinished as may be: in all, or (`own`) of the one who asks."""

    def __init__(self, unfinished: int, *, own: bool) -> None:
        whose = "of your jobs" if own else "jobs"
        super().__init__(f"{unfinished} {whose} wait or run, which is as many as may; try again later")
        self.own = own


class KeyReusedError(Exception):
    """An idempotency key came with another body, or for another kind of job, before."""


class PageTokenError(ValueError):
    """A page token is none that this service gave."""


@dataclass(frozen=True)
class Submission:
    """A job to be made for `owner`: `request` as canonical JSON, `cache_key` the hash that equal requests share.

    `body_hash` is of the body as it came, for `idempotency_key`; `fresh`: an answer that is there already will not do.
    """

    owner: str
    kind: Kind
    request: str
    cache_key: str | None = None
    idempotency_key: str | None = None
    body_hash: str = ""
    fresh: bool = False


@dataclass(frozen=True)
class Submitted:
    """The job of a submission, and where it is from: `new`, answered from the `cache`, or a `replay` of its key."""

    record: Record
    origin: Origin


@dataclass(frozen=True)
class Page:
    """Some of the jobs, newest first, without their results; `next_token` is None on the last page."""

    records: tuple[Record, ...]
    next_token: str | None


class Store:
    """Jobs in a database. Methods block; all are thread-safe."""

    def __init__(self, database: Database, *, max_unfinished: int, max_unfinished_per_owner: int, keep: Keep) -> None:
        self._database = database
        self._keep = keep
        self._most = max_unfinished
        self._most_per_owner = max_unfinished_per_owner

    def check(self) -> None:
        """Does nothing when the store can be read and written, and raises SQLAlchemy's error when not."""
        with self._database.write() as session:
            session.execute(select(JobRow).limit(0))
            session.merge(CheckRow(id=1, checked_at=datetime.now(UTC)))

    def submit(self, new: Submission) -> Submitted:
        """The job for `new`: one that is there already where that is right, or a new one that waits for its turn.

        Raises:
            BusyError: no more jobs are taken now.
            KeyReusedError: the idempotency key was used for another body.
        """
        return self.answered(new) or _once_more(lambda: self._submit(new))

    def answered(self, new: Submission) -> Submitted | None:
        """The job that is there already for `new`, whose `request` is not read; None when there is none.

        Raises:
            KeyReusedError: the idempotency key was used for another body.
        """
        if new.idempotency_key is None:
            return None if new.fresh else self._cached(new)
        return _once_more(lambda: self._keyed(new))

    def get(self, job_id: str, owner: str | None, kind: Kind) -> Record | None:
        """The job, unless it is another owner's; `owner` None sees them all."""
        query = select(JobRow, ResultRow.document).outerjoin(ResultRow).where(JobRow.id == job_id, JobRow.kind == kind)
        with self._database.read() as session:
            row = session.execute(query if owner is None else query.where(JobRow.owner == owner)).one_or_none()
            return None if row is None else record_of(*row)

    def request_of(self, job_id: str) -> str:
        """What was asked of a job, as JSON; "" where its answer embeds that, or nobody waits for one."""
        with self._database.read() as session:
            return session.scalar(select(JobRow.request).where(JobRow.id == job_id)) or ""

    def list_page(
        self, owner: str | None, kind: Kind, *, size: int, token: str | None = None, states: Sequence[State] = ()
    ) -> Page:
        """The jobs after those of the page that gave `token`.

        Raises:
            PageTokenError: no page gave this token.
        """
        query = select(JobRow).where(JobRow.kind == kind)
        if owner is not None:
            query = query.where(JobRow.owner == owner)
        if states:
            query = query.where(JobRow.state.in_(states))
        if token is not None:
            query = query.where(tuple_(JobRow.created_at, JobRow.id) < tuple_(*_read_token(token)))
        query = query.order_by(JobRow.created_at.desc(), JobRow.id.desc()).limit(size + 1)
        with self._database.read() as session:
            rows = session.scalars(query).all()
            records = tuple(record_of(row) for row in rows[:size])
        return Page(records, _write_token(records[-1]) if len(rows) > size else None)

    def cancel(self, job_id: str) -> State | None:
        """Ends a job that waits, asks the holder of one that runs to end it. The state that this brought it into."""
        with self._database.write() as session:
            if end(session, job(job_id, State.QUEUED), cancelled(), keep=self._keep):
                return State.CANCELLED
            asked = change(session, job(job_id, State.RUNNING), state=State.CANCELLING)
        return State.CANCELLING if asked else None

    def last_events(self, job_ids: Iterable[str]) -> dict[str, int]:
        """The number of each job's last event; jobs that are no longer there are left out."""
        query = select(JobRow.id, JobRow.last_event).where(JobRow.id.in_(list(job_ids)))
        with self._database.read() as session:
            return {row.id: row.last_event for row in session.execute(query)}

    def newest_event(self, job_id: str) -> Event | None:
        """The last event of a job so far."""
        query = select(EventRow, JobRow.state, JobRow.last_event).join(JobRow)
        query = query.where(JobRow.id == job_id, EventRow.sequence == JobRow.last_event)
        with self._database.read() as session:
            row = session.execute(query).one_or_none()
            return None if row is None else event_of(*row)

    def counts(self) -> dict[State, int]:
        """How many jobs there are in each unfinished state."""
        query = select(JobRow.state, func.count()).where(JobRow.state.in_(UNFINISHED)).group_by(JobRow.state)
        with self._database.read() as session:
            found = {State(state): count for state, count in session.execute(query).tuples()}
        return {state: found.get(state, 0) for state in UNFINISHED}

    def _cached(self, new: Submission) -> Submitted | None:
        """An answer for the same owner to the same request: it takes no write."""
        if new.cache_key is None:
            return None
        with self._database.read() as session:
            row = session.execute(_answered(new).where(JobRow.owner == new.owner).limit(1)).one_or_none()
            return None if row is None else Submitted(record_of(*row), "cache")

    def _keyed(self, new: Submission) -> Submitted | None:
        with self._database.write() as session:
            return self._found(session, new)

    def _submit(self, new: Submission) -> Submitted:
        with self._database.write() as session:
            found = self._found(session, new)
            if found is not None:
                return found
            self._refuse_if_full(session, new.owner)
            made = record_of(_insert(session, new))
            _keep_key(session, new, made)
            return Submitted(made, "new")

    def _found(self, session: Session, new: Submission) -> Submitted | None:
        found = _replayed(session, new)
        if found is None and (found := _from_cache(session, new)):
            _keep_key(session, new, found.record)
        return found

    def _refuse_if_full(self, session: Session, owner: str) -> None:
        unfinished = select(func.count()).select_from(JobRow).where(JobRow.state.in_(UNFINISHED))
        count = session.scalar(unfinished) or 0
        if count >= self._most:
            raise BusyError(count, own=False)
        if count >= self._most_per_owner:
            own = session.scalar(unfinished.where(JobRow.owner == owner)) or 0
            if own >= self._most_per_owner:
                raise BusyError(own, own=True)


def _once_more(submit: Callable[[], T]) -> T:
    """What `submit` returns, after another try where the same key came twice at the same moment."""
    try:
        return submit()
    except IntegrityError:
        return submit()


def _keep_key(session: Session, new: Submission, record: Record) -> None:
    if new.idempotency_key is not None:
        row = IdempotencyRow(owner=new.owner, key=new.idempotency_key, body_hash=new.body_hash, job_id=record.id)
        session.add(row)


def _replayed(session: Session, new: Submission) -> Submitted | None:
    if new.idempotency_key is None:
        return None
    prior = session.get(IdempotencyRow, (new.owner, new.idempotency_key))
    if prior is None:
        return None
    if prior.body_hash != new.body_hash:
        raise KeyReusedError
    query = select(JobRow, ResultRow.document).outerjoin(ResultRow).where(JobRow.id == prior.job_id)
    found, document = session.execute(query).one()
    if found.kind != new.kind:
        raise KeyReusedError
    return Submitted(record_of(found, document), "replay")


def _from_cache(session: Session, new: Submission) -> Submitted | None:
    """The same owner's job, or a new one that shares the answer of another's."""
    if new.cache_key is None or new.fresh:
        return None
    own_first = _answered(new).order_by((JobRow.owner == new.owner).desc(), JobRow.finished_at.desc())
    row = session.execute(own_first.limit(1)).one_or_none()
    if row is None:
        return None
    found, document = row
    if found.owner == new.owner:
        return Submitted(record_of(found, document), "cache")
    shared = {"result_id": found.result_id, "request": found.request, "kept_bytes": found.kept_bytes}
    made = _insert(session, new, State(found.state), **shared, finished_at=datetime.now(UTC))
    return Submitted(record_of(made, document), "cache")


def _answered(new: Submission):  # type: ignore[no-untyped-def]
    query = select(JobRow, ResultRow.document).join(ResultRow)
    return query.where(JobRow.cache_key == new.cache_key, JobRow.kind == new.kind, JobRow.state.in_(PROVEN))


def _insert(session: Session, new: Submission, state: State = State.QUEUED, **values: object) -> JobRow:
    row = JobRow(
        **{"request": new.request, **values},
        id=uuid.uuid4().hex,
        kind=new.kind,
        owner=new.owner,
        state=state,
        created_at=datetime.now(UTC),
        cache_key=new.cache_key,
        attempt=0,
        last_event=1,
    )
    session.add(row)
    session.flush()
    session.add(EventRow(job_id=row.id, sequence=1, data=event_json(state, 0, None)))
    return row


def _write_token(record: Record) -> str:
    place = f"{record.created_at.isoformat()} {record.id}"
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[datetime, str]:
    try:
        place = TOKEN.fullmatch(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if place is not None:
            return datetime.fromisoformat(place[1].decode()), place[2].decode()
    except ValueError:  # no base64, or no such moment
        pass
    raise PageTokenError("this is no page token of this service")
