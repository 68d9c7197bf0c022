"""The queue on PostgreSQL (Procrastinate). All that it says is "look at this job"; the job's row says what to do."""

from __future__ import annotations

import logging

import procrastinate
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from sqlalchemy import text

from bapipe_api.database import Database
from bapipe_api.states import State

NAME = "bapipe"
TASK = "bapipe.look"
CONNECT_TIMEOUT_S = 5.0

FORGOTTEN = text(
    "SELECT id FROM jobs WHERE state = :queued AND NOT EXISTS ("
    "SELECT 1 FROM procrastinate_jobs looks WHERE looks.queueing_lock = jobs.id AND looks.status = 'todo'"
    ") ORDER BY created_at LIMIT 1000"
)

log = logging.getLogger(__name__)


class Queue:
    """Announcements of jobs to all workers. Methods block; all are thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        connector = procrastinate.SyncPsycopgConnector(
            conninfo=conninfo(database), min_size=1, max_size=4, timeout=CONNECT_TIMEOUT_S
        )
        self._app = procrastinate.App(connector=connector)

    def open(self) -> None:
        self._app.open()

    def close(self) -> None:
        self._app.close()

    def announce(self, job_id: str) -> None:
        """Has a worker look at this job. It is announced once, however often that is said before one does."""
        try:
            self._app.configure_task(TASK, queue=NAME, queueing_lock=job_id).defer(job_id=job_id)
        except AlreadyEnqueued:
            pass
        except ConnectorException as error:
            log.warning("not announced, it will be found later: %s", error, extra={"job_id": job_id})

    def forgotten(self) -> list[str]:
        """Jobs that wait without being announced: whoever should have done that ended too soon."""
        with self._database.read() as session:
            return list(session.scalars(FORGOTTEN, {"queued": State.QUEUED.value}))


def conninfo(database: Database) -> str:
    """The database's address as PostgreSQL's own library takes it."""
    return database.url.set(drivername="postgresql").render_as_string(hide_password=False)
