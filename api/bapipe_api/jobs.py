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
CANCELLED = Fault("cancelled", "the client left before the search ended")
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
        self._stopping = False
        self._jobs: dict[str, Job] = {}
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
        """Stops, and returns when the last state of every job is stored."""
        self.stop()
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
            if self._stopping or admitted >= self._places:
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
        if self._must_stop(job):
            return State.CANCELLED, None, self._why_stopped()
        self._store.start(job.id)
        try:
            plan = self._solve(job.request, should_stop=lambda: self._must_stop(job))
        except InvalidInputError as error:
            return State.FAILED, None, _problem_json(HTTPStatus.UNPROCESSABLE_ENTITY, *error.faults)
        except TimeLimitError as error:
            if self._must_stop(job):
                return State.CANCELLED, None, self._why_stopped()
            fault = Fault("time_limit", str(error), "/time_limit_s")
            return State.TIMED_OUT, None, _problem_json(HTTPStatus.GATEWAY_TIMEOUT, fault)
        except Exception:
            log.exception("plan %s: the search failed", job.id)
            return State.FAILED, None, _problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
        state = state_of(plan, cancelled=self._must_stop(job))
        return state, plan.model_dump_json(), self._why_stopped() if state == State.CANCELLED else None

    def _must_stop(self, job: Job) -> bool:
        return self._stopping or job.stop.is_set()

    def _why_stopped(self) -> str:
        if self._stopping:
            return _problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED)
        return _problem_json(HTTPStatus.CONFLICT, CANCELLED)


def _problem_json(status: HTTPStatus, *faults: Fault) -> str:
    return json.dumps(problem(status, faults).model_dump())
