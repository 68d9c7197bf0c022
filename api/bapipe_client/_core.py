"""The client without its input and output: what is sent, what an answer means, and what comes next.

A conversation is a generator: it yields a `Call` to be sent and is given the response, or yields a `Pause`. `Client`
drives it with blocking calls; an asynchronous client drives the same one with awaited calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel, ValidationError

from bapipe.errors import InvalidInputError
from bapipe.faults import parse, parse_json
from bapipe.problem import ModelProfile, PlanRequest
from bapipe_client._retries import RETRIED_STATUSES, RetryPolicy, retry_after_s
from bapipe_client.errors import (
    NotAllowedError,
    NotFoundError,
    ServerError,
    ServiceBusyError,
    ServiceError,
    ServiceUnreachableError,
    UnexpectedResponseError,
)
from bapipe_client.models import Health, Problem, Validation

JSON = {"Content-Type": "application/json"}
INPUT_STATUSES = frozenset({400, 413, 415, 422})

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


def validate(request: PlanRequest, retries: RetryPolicy) -> Conversation[Validation]:
    call = Call("POST", "/v1/plans:validate", request.model_dump_json(), JSON)
    return read(Validation, (yield from exchange(call, retries)))


def import_profile(
    content: bytes, parameters: Mapping[str, object], retries: RetryPolicy
) -> Conversation[ModelProfile]:
    given = {name: value for name, value in parameters.items() if value is not None}
    call = Call(
        "POST", f"/v1/profiles:import?{urlencode(given, errors='replace')}", content, {"Content-Type": "text/plain"}
    )
    return read(ModelProfile, (yield from exchange(call, retries)))


def presets(name: str, kind: type[A], retries: RetryPolicy) -> Conversation[dict[str, A]]:
    response = yield from exchange(Call("GET", f"/v1/presets/{name}"), retries)
    return _understood(response, lambda values: {key: parse(kind, value) for key, value in values.items()})


def example(name: str, retries: RetryPolicy) -> Conversation[ModelProfile]:
    call = Call("GET", f"/v1/presets/profiles/{segment(name)}")
    return read(ModelProfile, (yield from exchange(call, retries)))


def ready() -> Conversation[bool]:
    """True when the service can take work, False when it cannot or is not there: nothing is retried."""
    try:
        response = yield from exchange(Call("GET", "/readyz"), RetryPolicy(most=0))
        return read(Health, response).status == "ready"
    except ServiceError:
        return False


def read(kind: type[A], response: httpx.Response) -> A:
    """The answer in `response` as a `kind`."""
    return _understood(response, lambda value: parse(kind, value))


def _understood(response: httpx.Response, understand: Callable[[Any], R]) -> R:
    """What `understand` makes of the JSON in `response`."""
    try:
        return understand(parse_json(response.content))
    except (InvalidInputError, AttributeError) as error:
        detail = error.faults[0] if isinstance(error, InvalidInputError) else "it is no object"
        raise UnexpectedResponseError(f"{_where(response)} answered what this client cannot read: {detail}") from None


def exchange(call: Call, retries: RetryPolicy) -> Generator[Call | Pause, Any, httpx.Response]:
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
        where = "; give it in BAPIPE_API_KEY, or as api_key" if status == HTTPStatus.UNAUTHORIZED else ""
        return NotAllowedError(message + where, status)
    return ServerError(message, status) if response.is_server_error else UnexpectedResponseError(message)


def _problem(response: httpx.Response) -> Problem | None:
    """The problem document in `response`; None when there is none, as from a proxy on the way."""
    if not response.headers.get("Content-Type", "").startswith("application/problem+json"):
        return None
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _where(response: httpx.Response) -> str:
    return without_password(f"{response.request.method} {response.request.url}")


def segment(text: str) -> str:
    """`text` as one part of an address, whatever it is."""
    return quote(text, safe="", errors="replace")


def without_password(text: str) -> str:
    """An address that may hold a password, as it may be shown."""
    return re.sub(r"//[^/@]*@", "//", text)
