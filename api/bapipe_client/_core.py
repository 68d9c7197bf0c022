"""The client without its input and output: what is sent, what an answer means, and what comes next.

A conversation is a generator: it yields a `Call` to be sent and is given the response, or yields a `Pause`. `Client`
drives it with blocking calls; an asynchronous client drives the same one with awaited calls.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel, ValidationError

from bapipe.emulation import EmulationReport, EmulationRequest
from bapipe.errors import InvalidInputError, TimeLimitError
from bapipe.faults import parse, parse_json
from bapipe.plan import Plan
from bapipe.problem import ModelProfile, PlanRequest
from bapipe_client._retries import RETRIED_STATUSES, RetryPolicy, retry_after_s
from bapipe_client.errors import (
    NotAllowedError,
    NotFoundError,
    ServerError,
    ServiceBusyError,
    ServiceError,
    ServiceUnreachableError,
    SolveFailedError,
    StillRunningError,
    UnexpectedResponseError,
)
from bapipe_client.models import PlanPage, PlanResource, PlanSummary, Problem, SimulationResult, Validation

WAIT_S = 30.0
"""How long one request waits for a search: longer, and something on the way may take the connection for dead."""

JSON = {"Content-Type": "application/json"}
INPUT_STATUSES = frozenset({400, 413, 415, 422})
POLL_S = 0.5

A = TypeVar("A", bound=BaseModel)
R = TypeVar("R")


@dataclass(frozen=True)
class Call:
    """A request to be sent, and how much longer than usual its answer may take.

    Sending any of them twice does what sending it once does: a submission has an idempotency key.
    """

    method: str
    path: str
    content: str | bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


@dataclass(frozen=True)
class Pause:
    """Seconds to wait before going on."""

    seconds: float


Conversation = Generator[Call | Pause, httpx.Response | ServiceError | None, R]


def request_of(request: PlanRequest | None, fields: Mapping[str, Any]) -> PlanRequest:
    """The request, or the one with these fields.

    Raises:
        InvalidInputError: with every fault of the fields.
    """
    if request is not None and fields:
        raise TypeError("give a request, or the fields of one, not both")
    return request or parse(PlanRequest, dict(fields))


def submit(
    request: PlanRequest, retries: RetryPolicy, *, key: str | None, fresh: bool = False, wait_s: float = 0.0
) -> Conversation[PlanResource]:
    """Submits `request`, and waits a moment for its plan. The key lets it be sent again: that makes no second job.

    Raises:
        InvalidInputError: the service refuses the request; it holds every fault.
        ServiceError: it does not take it for another reason.
    """
    headers = {**JSON, "Idempotency-Key": key or uuid.uuid4().hex}
    if fresh:
        headers["Cache-Control"] = "no-cache"
    if wait_s:
        headers["Prefer"] = f"wait={math.ceil(wait_s)}"
    call = Call("POST", "/v1/plans", request.model_dump_json(), headers, wait_s)
    return read(PlanResource, (yield from _exchange(call, retries)))


def plan(request: PlanRequest, retries: RetryPolicy, *, fresh: bool = False) -> Conversation[Plan]:
    """Submits `request`, and reads its plan as soon as there is one.

    Raises:
        InvalidInputError: the service refuses the request; it holds every fault.
        TimeLimitError: no plan was found in time.
        ServiceError: anything else that ends without a plan.
    """
    resource = yield from submit(request, retries, key=None, fresh=fresh, wait_s=WAIT_S)
    if not resource.finished:
        resource = yield from wait(resource, retries)
    return plan_of(resource)


def wait(resource: PlanSummary, retries: RetryPolicy, *, most_s: float | None = None) -> Conversation[PlanResource]:
    """The plan once its search has ended.

    Raises:
        StillRunningError: it has not, after `most_s`.
    """
    deadline_s = math.inf if most_s is None else time.monotonic() + most_s
    state = resource.state
    while True:
        left_s = min(WAIT_S, max(deadline_s - time.monotonic(), 0.0))
        call = Call("GET", _plan_path(resource.id), None, {"Prefer": f"wait={math.ceil(left_s)}"}, left_s)
        asked_s = time.monotonic()
        found = read(PlanResource, (yield from _exchange(call, retries)))
        if found.finished:
            return found
        state = found.state
        if time.monotonic() >= deadline_s:
            raise StillRunningError(resource.id, state, most_s or 0.0)
        if time.monotonic() - asked_s < POLL_S:
            yield Pause(POLL_S)  # it does not wait: it stops, or waits less than it is asked to


def get_plan(plan_id: str, retries: RetryPolicy) -> Conversation[PlanResource]:
    return read(PlanResource, (yield from _exchange(Call("GET", _plan_path(plan_id)), retries)))


def cancel(plan_id: str, retries: RetryPolicy) -> Conversation[PlanResource]:
    return read(PlanResource, (yield from _exchange(Call("DELETE", _plan_path(plan_id)), retries)))


def list_page(token: str | None, states: Sequence[str], page_size: int, retries: RetryPolicy) -> Conversation[PlanPage]:
    parameters = [("page_size", str(page_size)), *(("state", state) for state in states)]
    parameters += [("page_token", token)] if token else []
    return read(PlanPage, (yield from _exchange(Call("GET", f"/v1/plans?{urlencode(parameters)}"), retries)))


def export(plan_id: str, form: str, retries: RetryPolicy) -> Conversation[str]:
    path = f"{_plan_path(plan_id)}/exports/{quote(form, safe='')}"
    response = yield from _exchange(Call("GET", path), retries)
    return response.text


def validate(request: PlanRequest, retries: RetryPolicy) -> Conversation[Validation]:
    call = Call("POST", "/v1/plans:validate", request.model_dump_json(), JSON)
    return read(Validation, (yield from _exchange(call, retries)))


def import_profile(
    content: bytes, parameters: Mapping[str, object], retries: RetryPolicy
) -> Conversation[ModelProfile]:
    given = {name: value for name, value in parameters.items() if value is not None}
    call = Call("POST", f"/v1/profiles:import?{urlencode(given)}", content, {"Content-Type": "text/plain"})
    return read(ModelProfile, (yield from _exchange(call, retries)))


def presets(name: str, kind: type[A], retries: RetryPolicy) -> Conversation[dict[str, A]]:
    response = yield from _exchange(Call("GET", f"/v1/presets/{name}"), retries)
    values = parse_json(response.content)
    return {key: parse(kind, value) for key, value in values.items()}


def example(name: str, retries: RetryPolicy) -> Conversation[ModelProfile]:
    call = Call("GET", f"/v1/presets/profiles/{quote(name, safe='')}")
    return read(ModelProfile, (yield from _exchange(call, retries)))


def simulate(subject: Plan, retries: RetryPolicy) -> Conversation[SimulationResult]:
    call = Call("POST", "/v1/simulations", subject.model_dump_json(), JSON)
    return read(SimulationResult, (yield from _exchange(call, retries)))


def emulate(asked: EmulationRequest, retries: RetryPolicy) -> Conversation[EmulationReport]:
    call = Call("POST", "/v1/emulations", asked.model_dump_json(), JSON)
    return read(EmulationReport, (yield from _exchange(call, retries)))


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
        error = outcome if isinstance(outcome, ServiceError) else error_of(outcome)
        if error is None:
            assert isinstance(outcome, httpx.Response)
            return outcome
        wait_s = retries.wait_s(attempt, asked_wait_s(outcome)) if may_retry(outcome) else None
        if wait_s is None:
            raise error
        yield Pause(wait_s)
        attempt += 1


def may_retry(outcome: httpx.Response | ServiceError) -> bool:
    """Whether the same request may get another answer."""
    if isinstance(outcome, httpx.Response):
        return outcome.status_code in RETRIED_STATUSES
    return isinstance(outcome, ServiceUnreachableError)


def asked_wait_s(outcome: httpx.Response | ServiceError) -> float | None:
    """Seconds after which the service wants to be asked again."""
    return retry_after_s(outcome.headers.get("Retry-After")) if isinstance(outcome, httpx.Response) else None


def error_of(response: httpx.Response) -> Exception | None:
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
        return ServiceBusyError(message, asked_wait_s(response))
    if status == HTTPStatus.NOT_FOUND and problem:
        return NotFoundError(message)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and problem:
        return NotAllowedError(message, status)
    return ServerError(message, status) if response.is_server_error else UnexpectedResponseError(message)


def _problem(response: httpx.Response) -> Problem | None:
    """The problem document in `response`; None when there is none, as from a proxy on the way."""
    if not response.headers.get("Content-Type", "").startswith("application/problem+json"):
        return None
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def plan_of(resource: PlanResource) -> Plan:
    """The plan, or what there is in its place as an error."""
    if resource.plan is not None:
        return resource.plan
    problem = resource.error
    faults = problem.errors if problem else ()
    if problem and problem.status in INPUT_STATUSES:
        raise InvalidInputError(faults)
    if resource.state == "timed_out":
        raise TimeLimitError("; ".join(fault.detail for fault in faults))
    raise SolveFailedError(resource.id, resource.state, faults)


def events_path(plan_id: str) -> str:
    return f"{_plan_path(plan_id)}/events"


def _plan_path(plan_id: str) -> str:
    return f"/v1/plans/{quote(plan_id, safe='')}"


def _where(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url}"
