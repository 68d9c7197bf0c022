"""The client without its input and output: what is sent, what an answer means, and what comes next.

A conversation is a generator: it yields a `Call` to be sent and is given the response, or yields a `Pause`. `Client`
drives it with blocking calls; an asynchronous client drives the same one with awaited calls.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from bapipe.errors import InvalidInputError, TimeLimitError
from bapipe.faults import parse, parse_json
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_client._retries import RETRIED_STATUSES, RetryPolicy, retry_after_s
from bapipe_client.errors import (
    NotFoundError,
    ServerError,
    ServiceBusyError,
    ServiceError,
    ServiceUnreachableError,
    SolveFailedError,
    UnexpectedResponseError,
)
from bapipe_client.models import PlanResource, Problem, SimulationResult

SOLVE_RESERVE_S = 10.0
"""How much longer than its time limit a search is waited for in one request: start, child process, last word."""
INPUT_STATUSES = frozenset({400, 413, 415, 422})
POLL_S = 1.0

A = TypeVar("A", bound=BaseModel)
R = TypeVar("R")


@dataclass(frozen=True)
class Call:
    """A request to be sent, and how much longer than usual its answer may take.

    `repeatable`: sending it twice does what sending it once does.
    """

    method: str
    path: str
    content: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    repeatable: bool = True


@dataclass(frozen=True)
class Pause:
    """Seconds to wait before going on."""

    seconds: float


Conversation = Generator[Call | Pause, httpx.Response | ServiceError | None, R]


def plan(request: PlanRequest, retries: RetryPolicy) -> Conversation[Plan]:
    """Submits `request`, and reads its plan as soon as there is one.

    Raises:
        InvalidInputError: the service refuses the request; it holds every fault.
        TimeLimitError: no plan was found in time.
        ServiceError: anything else that ends without a plan.
    """
    wait_s = request.time_limit_s + SOLVE_RESERVE_S
    headers = {"Content-Type": "application/json", "Prefer": f"wait={math.ceil(wait_s)}"}
    call = Call("POST", "/v1/plans", request.model_dump_json(), headers, wait_s, repeatable=False)
    response = yield from _exchange(call, retries)
    resource = read(PlanResource, response)
    while not resource.finished:
        yield Pause(min(_asked_wait_s(response) or POLL_S, retries.longest_wait_s))
        response = yield from _exchange(Call("GET", _plan_path(resource.id)), retries)
        resource = read(PlanResource, response)
    return _plan_of(resource)


def get_plan(plan_id: str, retries: RetryPolicy) -> Conversation[PlanResource]:
    return read(PlanResource, (yield from _exchange(Call("GET", _plan_path(plan_id)), retries)))


def simulate(subject: Plan, retries: RetryPolicy) -> Conversation[SimulationResult]:
    headers = {"Content-Type": "application/json"}
    call = Call("POST", "/v1/simulations", subject.model_dump_json(), headers)
    return read(SimulationResult, (yield from _exchange(call, retries)))


def ready() -> Conversation[bool]:
    """True when the service can take work, False when it cannot or is not there: nothing is retried."""
    try:
        yield from _exchange(Call("GET", "/readyz"), RetryPolicy(most=0))
    except ServiceError:
        return False
    return True


def read(kind: type[A], response: httpx.Response) -> A:
    """The answer in `response` as a `kind`."""
    try:
        return parse(kind, parse_json(response.content))
    except InvalidInputError as error:
        detail = error.faults[0]
        raise UnexpectedResponseError(f"{_where(response)} answered what this client cannot read: {detail}") from None


def _exchange(call: Call, retries: RetryPolicy) -> Generator[Call | Pause, Any, httpx.Response]:
    """Sends `call` until it is answered for good, or the retries are used up."""
    attempt = 0
    while True:
        outcome: httpx.Response | ServiceError = yield call
        error = outcome if isinstance(outcome, ServiceError) else _error_of(outcome)
        if error is None:
            assert isinstance(outcome, httpx.Response)
            return outcome
        wait_s = retries.wait_s(attempt, _asked_wait_s(outcome)) if _may_retry(call, outcome) else None
        if wait_s is None:
            raise error
        yield Pause(wait_s)
        attempt += 1


def _may_retry(call: Call, outcome: httpx.Response | ServiceError) -> bool:
    if isinstance(outcome, httpx.Response):
        return outcome.status_code in RETRIED_STATUSES
    return isinstance(outcome, ServiceUnreachableError) and (call.repeatable or not outcome.may_have_arrived)


def _asked_wait_s(outcome: httpx.Response | ServiceError) -> float | None:
    return retry_after_s(outcome.headers.get("Retry-After")) if isinstance(outcome, httpx.Response) else None


def _error_of(response: httpx.Response) -> Exception | None:
    """What `response` says went wrong; None when nothing did."""
    status = response.status_code
    if response.is_success:
        return None
    problem = _problem(response)
    said = problem.detail if problem and problem.detail else response.reason_phrase
    message = f"{_where(response)} answered {status}: {said}"
    if status in INPUT_STATUSES and problem and problem.errors:
        return InvalidInputError(problem.errors)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return ServiceBusyError(message, _asked_wait_s(response))
    if status == HTTPStatus.NOT_FOUND and problem:
        return NotFoundError(message)
    return ServerError(message, status) if response.is_server_error else UnexpectedResponseError(message)


def _problem(response: httpx.Response) -> Problem | None:
    """The problem document in `response`; None when there is none, as from a proxy on the way."""
    if not response.headers.get("Content-Type", "").startswith("application/problem+json"):
        return None
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _plan_of(resource: PlanResource) -> Plan:
    if resource.plan is not None:
        return resource.plan
    problem = resource.error
    faults = problem.errors if problem else ()
    if problem and problem.status in INPUT_STATUSES:
        raise InvalidInputError(faults)
    if resource.state == "timed_out":
        raise TimeLimitError("; ".join(fault.detail for fault in faults))
    raise SolveFailedError(resource.id, resource.state, faults)


def _plan_path(plan_id: str) -> str:
    return f"/v1/plans/{quote(plan_id, safe='')}"


def _where(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url}"
