"""The store as those use it who work on jobs: a job is held under a lease, and only its holder may end it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Update, delete, func, select, update
from sqlalchemy.orm import Session

from bapipe_api.changes import change, end, job
from bapipe_api.database import Database
from bapipe_api.kinds import Kind
from bapipe_api.metrics import Metrics
from bapipe_api.records import Ending, Progress, cancelled, killed
from bapipe_api.settings import Keep
from bapipe_api.states import HELD, State
from bapipe_api.tables import JobRow, WorkerRow

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lease:
    """A job that this process holds, for its `attempt`-th attempt."""

    job_id: str
    kind: Kind
    request: str
    attempt: int
    token: str


class Taken(NamedTuple):
    """A job that was taken back, and the state that it is then in."""

    job_id: str
    kind: Kind
    state: State


class Leases:
    """Jobs as they are worked on by `worker`. Methods block; all are thread-safe.

    `lease_s` None: a job is held for as long as the process lives, as where it is the only one.
    """

    def __init__(
        self, database: Database, worker: str, *, lease_s: float | None, max_attempts: int, keep: Keep
    ) -> None:
        self._database = database
        self.worker = worker
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._keep = keep

    def claim(self, job_id: str) -> Lease | None:
        """Takes this job, unless it no longer waits."""
        return self._take(select(JobRow.id).where(JobRow.id == job_id, JobRow.state == State.QUEUED))

    def claim_next(self) -> Lease | None:
        """Takes the job that has waited longest; None when none waits."""
        waiting = select(JobRow.id).where(JobRow.state == State.QUEUED)
        return self._take(waiting.order_by(JobRow.created_at, JobRow.id).limit(1))

    def held(self) -> dict[str, tuple[str, State]]:
        """The jobs that the store says this worker holds: the token and the state of each."""
        query = select(JobRow.id, JobRow.lease_token, JobRow.state)
        query = query.where(JobRow.worker == self.worker, JobRow.state.in_(HELD))
        with self._database.read() as session:
            return {row.id: (str(row.lease_token), State(row.state)) for row in session.execute(query)}

    def renew(self) -> None:
        """Says that this worker lives, which keeps all its jobs for another `lease_s`."""
        assert self._lease_s is not None
        until = self._database.now_s() + self._lease_s
        mine = update(JobRow).where(JobRow.worker == self.worker, JobRow.state.in_(HELD)).values(lease_until=until)
        with self._database.write() as session:
            session.execute(mine.execution_options(synchronize_session=False))
            now = session.scalar(select(self._database.now_s()))
            session.merge(WorkerRow(id=self.worker, seen_s=now))

    def leave(self) -> None:
        """This worker takes no more jobs."""
        with self._database.write() as session:
            session.execute(delete(WorkerRow).where(WorkerRow.id == self.worker))

    def note(self, lease: Lease, progress: Progress) -> bool:
        """Writes down how far a job is; False when it is no longer held."""
        with self._database.write() as session:
            return change(session, _held(lease), progress) is not None

    def finish(self, lease: Lease, ending: Ending) -> bool:
        """Ends a job; False when it is no longer held, and this ending is of no account."""
        with self._database.write() as session:
            return end(session, _held(lease), ending, keep=self._keep)

    def release(self, lease: Lease) -> bool:
        """Lets a job wait for another worker, as if this attempt had not been begun."""
        with self._database.write() as session:
            put_back = self._put_back(session, lease.job_id, lease.token, attempt=JobRow.attempt - 1)
            return put_back or self._drop(session, lease.job_id, lease.token) is not None

    def lose(self, lease: Lease, result: str | None) -> State | None:
        """The process of this attempt was ended from outside: another attempt, or the end if this was the last one.

        The state that the job is then in; None when it was no longer held.
        """
        with self._database.write() as session:
            return self._lost(session, lease.job_id, lease.token, lease.attempt, result)

    def sweep(self) -> list[Taken]:
        """Takes back the jobs of workers that were not heard of in time."""
        return self._take_back(JobRow.lease_until < self._database.now_s())

    def take_back_all(self) -> list[Taken]:
        """Takes back every job that is held: for a process that is the only one, and starts."""
        return self._take_back()

    def live_workers(self, within_s: float, prefix: str = "") -> int:
        """How many workers, whose names begin so, were heard of in the last `within_s`."""
        now = self._database.now_s()
        query = select(func.count()).select_from(WorkerRow).where(WorkerRow.seen_s > now - within_s)
        with self._database.read() as session:
            return session.scalar(query.where(WorkerRow.id.startswith(prefix, autoescape=True))) or 0

    def forget_workers(self, within_s: float) -> None:
        """Deletes workers that were not heard of for `within_s`."""
        with self._database.write() as session:
            session.execute(delete(WorkerRow).where(WorkerRow.seen_s < self._database.now_s() - within_s))

    def _take(self, which: Select[str]) -> Lease | None:
        token = uuid.uuid4().hex
        until = None if self._lease_s is None else self._database.now_s() + self._lease_s
        with self._database.write() as session:
            picked = update(JobRow).where(JobRow.id == which.scalar_subquery(), JobRow.state == State.QUEUED)
            taken = change(
                session,
                picked,
                state=State.RUNNING,
                worker=self.worker,
                lease_token=token,
                lease_until=until,
                attempt=JobRow.attempt + 1,
                started_at=func.coalesce(JobRow.started_at, datetime.now(UTC).replace(tzinfo=None)),
            )
            if not taken:
                return None
            row = session.scalars(select(JobRow).where(JobRow.lease_token == token)).one()
            return Lease(row.id, Kind(row.kind), row.request, row.attempt, token)

    def _take_back(self, *which: ColumnElement[bool]) -> list[Taken]:
        query = select(JobRow.id, JobRow.kind, JobRow.lease_token, JobRow.attempt)
        with self._database.read() as session:
            rows = session.execute(query.where(JobRow.state.in_(HELD), *which)).all()
        taken = []
        for job_id, kind, token, attempt in rows:
            with self._database.write() as session:
                state = self._lost(session, job_id, str(token), attempt, None)
            if state is not None:
                taken.append(Taken(job_id, Kind(kind), state))
        return taken

    def _lost(self, session: Session, job_id: str, token: str, attempt: int, result: str | None) -> State | None:
        if attempt < self._max_attempts:
            return State.QUEUED if self._put_back(session, job_id, token) else self._drop(session, job_id, token)
        ending = killed(attempt, result)
        picked = job(job_id, State.RUNNING).where(JobRow.lease_token == token)
        ended = end(session, picked, ending, keep=self._keep)
        return State.FAILED if ended else self._drop(session, job_id, token)

    def _put_back(self, session: Session, job_id: str, token: str, **values: Any) -> bool:
        values |= {"worker": None, "lease_token": None, "lease_until": None}
        picked = job(job_id, State.RUNNING).where(JobRow.lease_token == token)
        return change(session, picked, state=State.QUEUED, **values) is not None

    def _drop(self, session: Session, job_id: str, token: str) -> State | None:
        """Nobody works any more on a job that was to be cancelled: it is."""
        picked = job(job_id, State.CANCELLING).where(JobRow.lease_token == token)
        ended = end(session, picked, cancelled(), keep=self._keep)
        return State.CANCELLED if ended else None


def _held(lease: Lease) -> Update:
    return job(lease.job_id, *HELD).where(JobRow.lease_token == lease.token)


def tell(taken: Iterable[Taken], why: str, metrics: Metrics) -> None:
    """Has the log and the figures say which jobs were taken back."""
    for lost in taken:
        log.warning("%s: the %s is now %s", why, lost.kind, lost.state, extra={"job_id": lost.job_id})
        metrics.count(lost.kind, lost.state)
