"""The engine that runs solves: each in a killable process of its own, a bounded number at a time.

A job belongs to the engine, not to the request that started it: whoever waits for it may stop waiting.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from bapipe.errors import BaPipeError, Fault, InvalidInputError, TimeLimitError
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_api.keeper import Keeper
from bapipe_api.problems import problem
from bapipe_api.states import State, state_of
from bapipe_api.store import Record, Store

INTERRUPTED = Fault("interrupted", "the service stopped while this plan was being searched; submit it again")
CANCELLED = Fault("cancelled", "the client left before the search ended")
INTERNAL = Fault("internal_error", "the search met an error of its own; the service's log says which")

Ending = tuple[State, str | None, str | None]
"""The last state of a job, with its plan or its problem as JSON."""

log = logging.getLogger(__name__)


class Solve(Protocol):
    """Searches a plan until it is found, the time is up, or `should_stop()`: `bapipe.planner.plan_isolated`."""

    def __call__(self, request: PlanRequest, *, should_stop: Callable[[], bool]) -> Plan: ...


class BusyError(Exception):
    """As many searches are held as may be."""

    def __init__(self, held: int) -> None:
        super().__init__(f"{held} searches run, wait or are being stored, which is as many as may; try again later")


@dataclass(frozen=True)
class Job:
    """A search under way or waiting. `record` is as it was queued; `done` holds its last one once it has ended."""

    request: PlanRequest
    record: Record
    done: Future[Record] = field(default_factory=Future)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def id(self) -> str:
        return self.record.id


class JobEngine:
    """Runs at most `max_concurrent` searches at a time, each watched by a thread, and lets `max_queued` wait.

    Whatever takes memory takes a place: a search until it has ended, its result until it is stored.
    """

    def __init__(self, store: Store, solve: Solve, *, max_concurrent: int, max_queued: int) -> None:
        self._store = store
        self._solve = solve
        self._keeper = Keeper(store)
        self._places = max_concurrent + max_queued
        self._stopping = False
        self._held = 0
        self._idle = max_concurrent
        self._waiting: dict[str, Job] = {}
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(max_concurrent, thread_name_prefix="solve")

    def start(self) -> None:
        """Marks as failed what an earlier process left running."""
        count = self._store.fail_interrupted(_problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED))
        if count:
            log.warning("%d searches did not end before the service last stopped; they are marked as failed", count)

    def stop(self) -> None:
        """Ends every search, and lets none begin. Returns at once, and may be called from a signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Stops, and returns when every job has ended and all that can be stored is."""
        self.stop()
        self._threads.shutdown(wait=True)
        self._work()
        self._keeper.close()

    def submit(self, request: PlanRequest) -> Job:
        """Stores `request` and lets its search start as soon as there is a place. Blocks for the store only.

        Raises:
            BusyError: as many searches are held as may be.
        """
        job = Job(request, Record(uuid.uuid4().hex, State.QUEUED, datetime.now(UTC)))
        self._admit()
        try:
            self._store.add(job.record, request.model_dump_json())
            self._queue(job)
        except BaseException:
            self._withdraw(job)
            self._release()
            raise
        return job

    def cancel(self, job: Job) -> None:
        """Ends a search early; what it has found so far is kept. Blocks for the store only."""
        job.stop.set()
        if self._withdraw(job):
            self._end(job, (State.CANCELLED, None, self._why_stopped()))

    def unsaved(self, plan_id: str) -> Record | None:
        """The last record of a job that could not be stored yet."""
        return self._keeper.unsaved(plan_id)

    def all_saved(self) -> bool:
        """Whether the last record of every job that has ended is stored."""
        return self._keeper.count() == 0

    def _admit(self) -> None:
        with self._guard:
            held = self._held + self._keeper.count()
            if self._stopping or held >= self._places:
                raise BusyError(held)
            self._held += 1

    def _release(self) -> None:
        with self._guard:
            self._held -= 1

    def _queue(self, job: Job) -> None:
        """No thread holds a job that waits: one that is withdrawn leaves nothing behind."""
        with self._guard:
            self._waiting[job.id] = job
            starts = self._idle > 0
            self._idle -= starts
        if starts:
            self._threads.submit(self._work)

    def _withdraw(self, job: Job) -> bool:
        """Whether the job was still waiting; it is no longer."""
        with self._guard:
            return self._waiting.pop(job.id, None) is not None

    def _next(self) -> Job | None:
        with self._guard:
            if self._waiting:
                return self._waiting.pop(next(iter(self._waiting)))
            self._idle += 1
            return None

    def _work(self) -> None:
        """Runs what waits, in a thread, until nothing does."""
        while (job := self._next()) is not None:
            self._end(job, self._outcome(job))

    def _end(self, job: Job, ending: Ending) -> None:
        """Stores how the job ended, or lets it be stored later, and tells whoever waits."""
        state, plan, error = ending
        record = replace(job.record, state=state, finished_at=datetime.now(UTC), plan=plan, error=error)
        log.info("plan %s: %s", job.id, state)
        self._keeper.keep(record)
        self._release()
        job.done.set_result(record)

    def _outcome(self, job: Job) -> Ending:
        if self._must_stop(job):
            return State.CANCELLED, None, self._why_stopped()
        self._note_start(job)
        try:
            plan = self._solve(job.request, should_stop=lambda: self._must_stop(job))
        except InvalidInputError as error:
            return State.FAILED, None, _problem_json(HTTPStatus.UNPROCESSABLE_ENTITY, *error.faults)
        except TimeLimitError as error:
            if self._must_stop(job):
                return State.CANCELLED, None, self._why_stopped()
            fault = Fault("time_limit", str(error), "/time_limit_s")
            return State.TIMED_OUT, None, _problem_json(HTTPStatus.GATEWAY_TIMEOUT, fault)
        except Exception as error:
            log.exception("plan %s: the search failed", job.id)
            return State.FAILED, None, _problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, _failure(error))
        state = state_of(plan, cancelled=self._must_stop(job))
        return state, plan.model_dump_json(), self._why_stopped() if state == State.CANCELLED else None

    def _note_start(self, job: Job) -> None:
        """A store that does not answer now may do so when the search has ended: it is no reason not to search."""
        try:
            self._store.start(job.id)
        except SQLAlchemyError as error:
            log.warning("plan %s: its start could not be stored: %s", job.id, error)

    def _must_stop(self, job: Job) -> bool:
        return self._stopping or job.stop.is_set()

    def _why_stopped(self) -> str:
        if self._stopping:
            return _problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED)
        return _problem_json(HTTPStatus.CONFLICT, CANCELLED)


def _failure(error: Exception) -> Fault:
    """A sentence of BaPipe's own, such as that memory ran out, is for the client; anything longer is a traceback."""
    said = str(error)
    return Fault("search_failed", said) if isinstance(error, BaPipeError) and "\n" not in said.strip() else INTERNAL


def _problem_json(status: HTTPStatus, *faults: Fault) -> str:
    return json.dumps(problem(status, faults).model_dump())
