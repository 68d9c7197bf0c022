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
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

from bapipe.errors import Fault, InvalidInputError, TimeLimitError
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_api.problems import problem
from bapipe_api.states import State, state_of
from bapipe_api.store import Record, Store

INTERRUPTED = Fault("interrupted", "the service stopped while this plan was being searched; submit it again")
CANCELLED = Fault("cancelled", "the client left before there was a plan")
INTERNAL = Fault("internal_error", "the search met an error of its own; the service's log says which")

Ending = tuple[State, str | None, str | None]
"""The last state of a job, with its plan or its problem as JSON."""

log = logging.getLogger(__name__)


class Solve(Protocol):
    """Searches a plan until it is found, the time is up, or `should_stop()`: `bapipe.planner.plan_isolated`."""

    def __call__(self, request: PlanRequest, *, should_stop: Callable[[], bool]) -> Plan: ...


class BusyError(Exception):
    """As many searches run and wait as may."""

    def __init__(self, admitted: int) -> None:
        super().__init__(f"{admitted} searches run or wait for their turn, which is as many as may; try again later")


@dataclass(frozen=True)
class Job:
    """A search under way or waiting. `done` holds its record as soon as its last state is stored."""

    id: str
    request: PlanRequest
    done: Future[Record] = field(default_factory=Future)
    stop: threading.Event = field(default_factory=threading.Event)


class JobEngine:
    """Runs at most `max_concurrent` searches at a time, each watched by a thread, and lets `max_queued` wait."""

    def __init__(self, store: Store, solve: Solve, *, max_concurrent: int, max_queued: int) -> None:
        self._store = store
        self._solve = solve
        self._places = max_concurrent + max_queued
        self._closing = False
        self._jobs: dict[str, Job] = {}
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(max_concurrent, thread_name_prefix="solve")

    def start(self) -> None:
        """Marks as failed what an earlier process left running."""
        count = self._store.fail_interrupted(_problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED))
        if count:
            log.warning("%d searches did not end before the service last stopped; they are marked as failed", count)

    def close(self) -> None:
        """Stops every solve, and returns when each one's last state is stored."""
        with self._guard:
            self._closing = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop.set()
        self._threads.shutdown(wait=True)

    def submit(self, request: PlanRequest) -> tuple[Job, Record]:
        """Stores `request` and lets its search start as soon as there is a place. Blocks for the store only.

        Raises:
            BusyError: as many searches run and wait as may.
        """
        job = Job(uuid.uuid4().hex, request)
        self._admit(job)
        try:
            record = self._store.add(job.id, request.model_dump_json())
            self._threads.submit(self._run, job)
        except BaseException:
            self._release(job)
            raise
        return job, record

    def cancel(self, job: Job) -> None:
        """Ends a solve early; what it has found so far is kept."""
        job.stop.set()

    def _admit(self, job: Job) -> None:
        """A job that was told to stop takes no place: it ends within moments of its turn."""
        with self._guard:
            admitted = sum(not other.stop.is_set() for other in self._jobs.values())
            if self._closing or admitted >= self._places:
                raise BusyError(admitted)
            self._jobs[job.id] = job

    def _release(self, job: Job) -> None:
        with self._guard:
            self._jobs.pop(job.id, None)

    def _run(self, job: Job) -> None:
        """The whole life of a job, in its thread: solve, store, tell whoever waits."""
        try:
            state, plan, error = self._outcome(job)
            record = self._store.finish(job.id, state, plan=plan, error=error)
        except Exception as error:
            log.exception("plan %s: its end could not be stored", job.id)
            self._release(job)
            job.done.set_exception(error)
        else:
            log.info("plan %s: %s", job.id, state)
            self._release(job)
            job.done.set_result(record)

    def _outcome(self, job: Job) -> Ending:
        if job.stop.is_set():
            return self._stopped()
        self._store.start(job.id)
        try:
            plan = self._solve(job.request, should_stop=job.stop.is_set)
        except InvalidInputError as error:
            return State.FAILED, None, _problem_json(HTTPStatus.UNPROCESSABLE_ENTITY, *error.faults)
        except TimeLimitError as error:
            if job.stop.is_set():
                return self._stopped()
            fault = Fault("time_limit", str(error), "/time_limit_s")
            return State.TIMED_OUT, None, _problem_json(HTTPStatus.GATEWAY_TIMEOUT, fault)
        except Exception:
            log.exception("plan %s: the search failed", job.id)
            return State.FAILED, None, _problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
        return state_of(plan, cancelled=job.stop.is_set()), plan.model_dump_json(), None

    def _stopped(self) -> Ending:
        """The end of a job that was told to stop before it found anything."""
        if self._closing:
            return State.FAILED, None, _problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED)
        return State.CANCELLED, None, _problem_json(HTTPStatus.CONFLICT, CANCELLED)


def _problem_json(status: HTTPStatus, *faults: Fault) -> str:
    return json.dumps(problem(status, faults).model_dump())
