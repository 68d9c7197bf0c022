"""The changes of a job's row that the service and its workers share, each inside a transaction of the caller's."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Update, case, delete, exists, func, select, update
from sqlalchemy.orm import Session

from bapipe_api.kinds import Kind
from bapipe_api.records import Ending, Event, Progress, Record, event_json
from bapipe_api.settings import Keep
from bapipe_api.states import UNFINISHED, State
from bapipe_api.tables import EventRow, JobRow, ResultRow


def change(session: Session, statement: Update, progress: Progress | None = None, **values: Any) -> Kind | None:
    """Changes the one job that `statement` picks and notes that as its next event.

    The kind of that job; None when it picks none.
    """
    statement = statement.values(last_event=JobRow.last_event + 1, **values)
    row = session.execute(
        statement.returning(JobRow.id, JobRow.kind, JobRow.state, JobRow.attempt, JobRow.last_event).execution_options(
            synchronize_session=False
        )
    ).one_or_none()
    if row is None:
        return None
    data = event_json(State(row.state), row.attempt, progress)
    session.add(EventRow(job_id=row.id, sequence=row.last_event, data=data))
    return Kind(row.kind)


def end(session: Session, statement: Update, ending: Ending, *, keep: Keep) -> bool:
    """Ends the one job that `statement` picks, and forgets those of its kind that ended before what is to be kept.

    False when it picks none: nothing is then changed. What was asked is kept only where something may be made of it:
    beside an answer that does not embed it.
    """
    values: dict[str, Any] = {"state": ending.state, "finished_at": datetime.now(UTC), "error": ending.error}
    values |= {"worker": None, "lease_token": None, "lease_until": None, "request": "", "kept_bytes": 0}
    if ending.result is not None:
        result = ResultRow(id=uuid.uuid4().hex, document=ending.result)
        session.add(result)
        session.flush()
        values["result_id"] = result.id
        values["request"] = request = case((JobRow.kind == Kind.PLAN, ""), else_=JobRow.request)
        values["kept_bytes"] = func.length(request) + len(ending.result)
    kind = change(session, statement, ending.progress, **values)
    if kind is not None:
        _forget_oldest(session, kind, keep)
    elif ending.result is not None:
        session.delete(result)
    return kind is not None


def _forget_oldest(session: Session, kind: Kind, keep: Keep) -> None:
    """Deletes all but the last jobs of a kind that have ended, and results that no job refers to any more.

    The very last one stays, however long it is.
    """
    newest_first = (JobRow.finished_at.desc(), JobRow.id)
    ranked = (
        select(
            JobRow.id,
            JobRow.result_id,
            func.row_number().over(order_by=newest_first).label("rank"),
            func.sum(JobRow.kept_bytes).over(order_by=newest_first).label("bytes"),
        )
        .where(JobRow.kind == kind, JobRow.finished_at.is_not(None))
        .subquery()
    )
    too_much = (ranked.c.bytes > keep.bytes) & (ranked.c.rank > 1)
    surplus = session.execute(select(ranked).where((ranked.c.rank > keep.jobs) | too_much)).all()
    if not surplus:
        return
    ids = [row.id for row in surplus]
    results = {row.result_id for row in surplus} - {None}
    session.execute(delete(JobRow).where(JobRow.id.in_(ids)).execution_options(synchronize_session=False))
    unused = delete(ResultRow).where(ResultRow.id.in_(results), ~exists().where(JobRow.result_id == ResultRow.id))
    session.execute(unused.execution_options(synchronize_session=False))


def job(job_id: str, *states: State) -> Update:
    """Picks a job while it is in one of these states."""
    return update(JobRow).where(JobRow.id == job_id, JobRow.state.in_(states))


def record_of(row: JobRow, result: str | None = None) -> Record:
    return Record(
        row.id,
        Kind(row.kind),
        State(row.state),
        row.created_at,
        row.started_at,
        row.finished_at,
        row.attempt,
        result,
        row.error,
        row.last_event,
    )


def event_of(row: EventRow, state: str, last: int) -> Event:
    return Event(row.sequence, row.data, final=State(state) not in UNFINISHED and row.sequence == last)
