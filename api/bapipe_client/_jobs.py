"""Conversations about jobs, the same for every kind: submitted, waited for, read, cancelled, listed, answered."""

from __future__ import annotations

import math
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from bapipe.emulation import EmulationOptions, EmulationReport, EmulationRequest
from bapipe.errors import Fault, InvalidInputError, TimeLimitError
from bapipe.plan import Plan
from bapipe_client._core import INPUT_STATUSES, JSON, Call, Conversation, Pause, exchange, read, segment
from bapipe_client._retries import RetryPolicy
from bapipe_client.errors import JobFailedError, StillRunningError
from bapipe_client.models import (
    EmulationResource,
    JobPage,
    JobResource,
    PlanResource,
    SimulationResource,
    SimulationResult,
)

WAIT_S = 30.0
"""How long one request waits for a job: longer, and something on the way may take the connection for dead."""

POLL_S = 0.5
KEY = re.compile(r"[!-~]{1,255}")

C = TypeVar("C", bound=JobResource)
A = TypeVar("A")


@dataclass(frozen=True)
class JobKind(Generic[C, A]):
    """Jobs that a service has under `/v1/{name}s`: what they are read as, and where their answer is in that."""

    name: str
    resource: type[C]
    answer: Callable[[C], A | None]

    @property
    def path(self) -> str:
        """Where they are."""
        return f"/v1/{self.name}s"

    def path_of(self, job_id: str) -> str:
        """Where one of them is."""
        return f"{self.path}/{segment(job_id)}"


PLANS: JobKind[PlanResource, Plan] = JobKind("plan", PlanResource, lambda job: job.plan)
SIMULATIONS: JobKind[SimulationResource, SimulationResult] = JobKind(
    "simulation", SimulationResource, lambda job: job.simulation
)
EMULATIONS: JobKind[EmulationResource, EmulationReport] = JobKind(
    "emulation", EmulationResource, lambda job: job.emulation
)


@dataclass(frozen=True)
class Ask:
    """What is asked for, as JSON, and how: `key` None makes one; `fresh`: an answer from before will not do."""

    content: str
    key: str | None = None
    fresh: bool = False


def emulation(plan: Plan, options: EmulationOptions | None) -> str:
    """What is asked for where a step of `plan` is to be emulated."""
    return EmulationRequest(plan=plan, options=options or EmulationOptions()).model_dump_json()


def submit(kind: JobKind[C, A], ask: Ask, retries: RetryPolicy, *, wait_s: float = 0.0) -> Conversation[C]:
    """Submits a job, and waits a moment for its answer. The key lets it be sent again: that makes no second job.

    Raises:
        InvalidInputError: the service refuses what is asked; it holds every fault.
        ServiceError: it does not take it for another reason.
    """
    key = uuid.uuid4().hex if ask.key is None else ask.key
    if not KEY.fullmatch(key):
        raise InvalidInputError([Fault("wrong_idempotency_key", "it has to have 1 to 255 visible ASCII characters")])
    headers = {**JSON, "Idempotency-Key": key}
    if ask.fresh:
        headers["Cache-Control"] = "no-cache"
    if wait_s:
        headers["Prefer"] = f"wait={math.ceil(wait_s)}"
    return read(kind.resource, (yield from exchange(Call("POST", kind.path, ask.content, headers, wait_s), retries)))


def answer(kind: JobKind[C, A], ask: Ask, retries: RetryPolicy) -> Conversation[A]:
    """Submits a job, and reads its answer as soon as there is one.

    Raises:
        InvalidInputError: the service refuses what is asked; it holds every fault.
        TimeLimitError: nothing was found in time.
        ServiceError: anything else that ends without an answer.
    """
    job = yield from submit(kind, ask, retries, wait_s=WAIT_S)
    if not job.finished:
        job = yield from wait(kind, job, retries)
    return answer_of(kind, job)


def wait(kind: JobKind[C, A], job: C, retries: RetryPolicy, *, most_s: float | None = None) -> Conversation[C]:
    """The job once it has ended.

    Raises:
        StillRunningError: it has not, after `most_s`.
    """
    deadline_s = math.inf if most_s is None else time.monotonic() + most_s
    while True:
        left_s = min(WAIT_S, max(deadline_s - time.monotonic(), 0.0))
        call = Call("GET", kind.path_of(job.id), None, {"Prefer": f"wait={math.ceil(left_s)}"}, left_s)
        asked_s = time.monotonic()
        found = read(kind.resource, (yield from exchange(call, retries)))
        if found.finished:
            return found
        if time.monotonic() >= deadline_s:
            raise StillRunningError(kind.name, found.id, found.state, most_s or 0.0)
        if time.monotonic() - asked_s < POLL_S:
            yield Pause(POLL_S)  # it does not wait: it stops, or waits less than it is asked to


def get(kind: JobKind[C, A], job_id: str, retries: RetryPolicy) -> Conversation[C]:
    return read(kind.resource, (yield from exchange(Call("GET", kind.path_of(job_id)), retries)))


def cancel(kind: JobKind[C, A], job_id: str, retries: RetryPolicy) -> Conversation[C]:
    return read(kind.resource, (yield from exchange(Call("DELETE", kind.path_of(job_id)), retries)))


def list_page(
    kind: JobKind[C, A], token: str | None, states: Sequence[str], page_size: int, retries: RetryPolicy
) -> Conversation[JobPage]:
    parameters = [("page_size", str(page_size)), *(("state", state) for state in states)]
    parameters += [("page_token", token)] if token else []
    return read(JobPage, (yield from exchange(Call("GET", f"{kind.path}?{urlencode(parameters)}"), retries)))


def trace(kind: JobKind[C, A], job_id: str, retries: RetryPolicy) -> Conversation[str]:
    response = yield from exchange(Call("GET", f"{kind.path_of(job_id)}/trace"), retries)
    return response.text


def export(kind: JobKind[C, A], job_id: str, form: str, retries: RetryPolicy) -> Conversation[str]:
    path = f"{kind.path_of(job_id)}/exports/{segment(form)}"
    response = yield from exchange(Call("GET", path), retries)
    return response.text


def answer_of(kind: JobKind[C, A], job: C) -> A:
    """The answer of a job that has ended, or what there is in its place as an error."""
    found = kind.answer(job)
    if found is not None:
        return found
    faults = job.error.errors if job.error else ()
    if job.error and job.error.status in INPUT_STATUSES:
        raise InvalidInputError(faults)
    if job.state == "timed_out":
        raise TimeLimitError("; ".join(fault.detail for fault in faults))
    raise JobFailedError(kind.name, job.id, job.state, faults)
