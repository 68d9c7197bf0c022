"""Does the jobs that this process holds: each watched by a thread of its own, all of them kept by one more thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError

from bapipe_api.database import brief
from bapipe_api.kinds import Kind
from bapipe_api.leases import Lease, Leases
from bapipe_api.logs import job_id_of_thread
from bapipe_api.metrics import Metrics
from bapipe_api.records import INTERNAL, Ending, Progress, Record, problem_json
from bapipe_api.states import State
from bapipe_api.work import Work, WorkLostError

LOOK_EVERY_S = 0.25
"""How long it takes at most until a cancellation, or the loss of a lease, is seen."""

EVENT_EVERY_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0

log = logging.getLogger(__name__)


class Held:
    """A job under way in this process."""

    def __init__(self, lease: Lease, stopping: Callable[[], bool]) -> None:
        self.lease = lease
        self.cancelled = self.lost = False
        self._stopping = stopping
        self._progress: Progress | None = None
        self._noted_s = time.monotonic()

    def must_stop(self) -> bool:
        return self.cancelled or self.lost or self._stopping()

    def report(self, progress: Progress) -> None:
        self._progress = progress

    def due(self) -> Progress | None:
        """The progress to be noted now, if there is any: at most one a second."""
        if self._progress is None or time.monotonic() - self._noted_s < EVENT_EVERY_S:
            return None
        progress, self._progress = self._progress, None
        self._noted_s = time.monotonic()
        return progress


class Runner:
    """Does jobs, and ends each in the store, however long the store takes to answer.

    `renew_every_s` None: leases do not run out.
    """

    def __init__(
        self, leases: Leases, work: Mapping[Kind, Work], metrics: Metrics, *, renew_every_s: float | None = None
    ) -> None:
        self._leases = leases
        self._work = work
        self._metrics = metrics
        self._renew_every_s = renew_every_s
        self._held: dict[str, Held] = {}
        self._unsaved: dict[str, Ending] = {}
        self._guard = threading.Lock()
        self._stopping = False
        self._renewed_s = float("-inf")
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def start(self) -> None:
        self._keeper.start()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        """Has every job put back into the queue. Returns at once, and may be called from a signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Ends the thread that keeps the jobs: for when none runs any more."""
        self._closing.set()
        self._keeper.join()

    def run(self, lease: Lease) -> None:
        """Does a job that was just claimed. Returns when it has ended and that is stored, or it is another's."""
        held = Held(lease, lambda: self._stopping)
        with self._holding(held):
            self._metrics.count(lease.kind, State.RUNNING)
            log.info("%s begun, attempt %d", lease.kind, lease.attempt)
            try:
                ending = self._work[lease.kind](lease.request, held)
            except WorkLostError as lost:
                result = lost.result
                self._save(held, lambda: self._leases.lose(lease, result))
                return
            except Exception:
                log.exception("the work failed")
                ending = Ending(State.FAILED, None, problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL))
            self._end(held, ending)

    def overlay(self, record: Record) -> Record:
        """The record with the ending that could not be stored yet, if that is so."""
        ending = self._unsaved.get(record.id)
        if ending is None or record.finished:
            return record
        return replace(
            record, state=ending.state, result=ending.result, error=ending.error, finished_at=datetime.now(UTC)
        )

    def fault(self) -> str | None:
        """Why this process is not well; None when it is."""
        if self._unsaved:
            return "results wait in memory until the store takes them; the service's log says why"
        return None if self._keeper.is_alive() else "the thread that keeps the jobs has ended"

    def _end(self, held: Held, ending: Ending) -> None:
        """A job that was stopped though nobody cancelled it waits for its next turn."""
        lease = held.lease
        if ending.state == State.CANCELLED and not held.cancelled:
            self._save(held, lambda: State.QUEUED if self._leases.release(lease) else None)
        else:
            self._save(held, lambda: ending.state if self._leases.finish(lease, ending) else None, ending)

    def _save(self, held: Held, save: Callable[[], State | None], ending: Ending | None = None) -> None:
        """Stores what became of a job. When the process has to stop first, the job is done again: nothing is lost."""
        pause_s, state = FIRST_PAUSE_S, None
        try:
            while not held.lost:
                try:
                    state = save()
                    break
                except SQLAlchemyError as error:
                    log.error("its end could not be stored; it will be tried again: %s", brief(error))
                if ending is not None:
                    self._unsaved[held.lease.job_id] = ending
                if self._stopping:
                    break
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            self._unsaved.pop(held.lease.job_id, None)
        self._metrics.count(held.lease.kind, state)
        log.info("now %s", state or "another's, or done again later")

    @contextmanager
    def _holding(self, held: Held) -> Iterator[None]:
        job_id, started_s = held.lease.job_id, time.monotonic()
        job_id_of_thread.set(job_id)
        with self._guard:
            self._held[job_id] = held
        try:
            yield
        finally:
            with self._guard:
                del self._held[job_id]
            job_id_of_thread.set(None)
            self._metrics.observe(held.lease.kind, time.monotonic() - started_s)

    def _keep(self) -> None:
        """Looks, again and again, what the store says of the jobs that are held here, and tells it that they live."""
        while not self._closing.wait(LOOK_EVERY_S):
            try:
                self._renew()
                self._look()
                self._note()
            except SQLAlchemyError as error:
                log.warning("the store does not answer: %s", brief(error))
            except Exception:
                log.exception("keeping the jobs failed; it goes on")

    def _renew(self) -> None:
        if self._renew_every_s is not None and time.monotonic() - self._renewed_s >= self._renew_every_s:
            self._leases.renew()
            self._renewed_s = time.monotonic()

    def _look(self) -> None:
        with self._guard:
            mine = dict(self._held)  # before the store is read: what is claimed after that is not missing
        if not mine:
            return
        stored = self._leases.held()
        for job_id, held in mine.items():
            token, state = stored.get(job_id, (None, None))
            held.lost = held.lost or token != held.lease.token
            held.cancelled = held.cancelled or state == State.CANCELLING

    def _note(self) -> None:
        with self._guard:
            mine = list(self._held.values())
        for held in mine:
            if (progress := held.due()) is not None:
                self._leases.note(held.lease, progress)
