"""The engine that runs solves: each in a killable process of its own, a bounded number at a time.

A job belongs to the engine, not to the request that started it: whoever waits for it may stop waiting.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
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

log = logging.getLogger(__name__)


class Solve(Protocol):
    """Searches a plan until it is found, the time is up, or `should_stop()`: `bapipe.planner.plan_isolated`."""

    def __call__(self, request: PlanRequest, *, should_stop: Callable[[], bool]) -> Plan: ...


class BusyError(Exception):
    """As many solves run as may; `retry_after_s` is when the first of them must have ended."""

    def __init__(self, running: int, retry_after_s: int) -> None:
        super().__init__(f"{running} solves are running, which is as many as may; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Job:
    """A solve under way. `done` holds its record as soon as its last state is stored."""

    id: str
    request: PlanRequest
    deadline: float
    done: Future[Record] = field(default_factory=Future)
    stop: threading.Event = field(default_factory=threading.Event)


class JobEngine:
    """Runs at most `max_concurrent` solves at a time, each watched by a thread of this process."""

    def __init__(self, store: Store, solve: Solve, max_concurrent: int) -> None:
        self._store = store
        self._solve = solve
        self._slots = max_concurrent
        self._closing = False
        self._jobs: dict[str, Job] = {}
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(max_concurrent, thread_name_prefix="solve")

    def start(self) -> None:
        """Marks as failed what an earlier process left running."""
        count = self._store.fail_interrupted(_problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED))
        if count:
            log.warning("%d plans were being searched when the service last stopped; they are marked as failed", count)

    def close(self) -> None:
        """Stops every solve, and returns when each one's last state is stored."""
        with self._guard:
            self._closing = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop.set()
        self._threads.shutdown(wait=True)

    def submit(self, request: PlanRequest) -> tuple[Job, Record]:
        """Stores `request` as running and starts its solve. Blocks for the store only.

        Raises:
            BusyError: as many solves run as may.
        """
        job = Job(uuid.uuid4().hex, request, time.monotonic() + request.time_limit_s)
        self._admit(job)
        try:
            record = self._store.add_running(job.id, request.model_dump_json())
            self._threads.submit(self._run, job)
        except BaseException:
            self._release(job)
            raise
        return job, record

    def cancel(self, job: Job) -> None:
        """Ends a solve early; what it has found so far is kept."""
        job.stop.set()

    def _admit(self, job: Job) -> None:
        with self._guard:
            if self._closing or len(self._jobs) >= self._slots:
                deadlines = [other.deadline for other in self._jobs.values()]
                wait_s = min(deadlines, default=time.monotonic()) - time.monotonic()
                raise BusyError(len(self._jobs), max(1, math.ceil(wait_s)))
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

    def _outcome(self, job: Job) -> tuple[State, str | None, str | None]:
        """The last state, with the plan or the problem as JSON."""
        try:
            plan = self._solve(job.request, should_stop=job.stop.is_set)
        except InvalidInputError as error:
            return State.FAILED, None, _problem_json(HTTPStatus.UNPROCESSABLE_ENTITY, *error.faults)
        except TimeLimitError as error:
            if self._closing:
                return State.FAILED, None, _problem_json(HTTPStatus.SERVICE_UNAVAILABLE, INTERRUPTED)
            if job.stop.is_set():
                return State.CANCELLED, None, _problem_json(HTTPStatus.CONFLICT, CANCELLED)
            fault = Fault("time_limit", str(error), "/time_limit_s")
            return State.TIMED_OUT, None, _problem_json(HTTPStatus.GATEWAY_TIMEOUT, fault)
        except Exception:
            log.exception("plan %s: the search failed", job.id)
            return State.FAILED, None, _problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
        return state_of(plan, cancelled=job.stop.is_set()), plan.model_dump_json(), None


def _problem_json(status: HTTPStatus, *faults: Fault) -> str:
    return json.dumps(problem(status, faults).model_dump())
