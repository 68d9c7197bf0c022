"""Every refusal is one document, RFC 9457 `application/problem+json`, with all faults of the input in `errors`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from http import HTTPMethod, HTTPStatus
from typing import Annotated

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from bapipe.errors import Fault, InvalidInputError
from bapipe_api.database import brief

MEDIA_TYPE = "application/problem+json"
MOST_SHOWN = 100
"""Characters of an address that are said again."""

log = logging.getLogger(__name__)


class Problem(BaseModel):
    """Why a request was refused, or a solve failed. `errors`: every fault; a `pointer` (RFC 6901) is into the body."""

    type: str = "about:blank"
    title: Annotated[str, Field(description="the HTTP status, in words")]
    status: int
    detail: str
    errors: tuple[Fault, ...]


class RefusedError(Exception):
    """A request is refused: HTTP `status`, a fault that says why, and headers that say what to do."""

    def __init__(self, status: HTTPStatus, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.fault = Fault(code, detail)
        self.headers = dict(headers or {})


def refuse(code: str, detail: str, pointer: str = "") -> InvalidInputError:
    """The error for one fault of the input, to be raised."""
    return InvalidInputError([Fault(code, detail, pointer)])


def problem(status: HTTPStatus, faults: Iterable[Fault]) -> Problem:
    """The document for `faults`; its `detail` is the only fault's, or how many there are."""
    items = tuple(faults)
    detail = items[0].detail if len(items) == 1 else f"{len(items)} faults: see errors"
    return Problem(title=status.phrase, status=status.value, detail=detail, errors=items)


def problem_response(status: HTTPStatus, faults: Iterable[Fault], headers: Mapping[str, str] | None = None) -> Response:
    """`problem` as a response. Its JSON is pure ASCII: a fault may quote text that is no valid Unicode."""
    content = json.dumps(problem(status, faults).model_dump(mode="python"))
    return Response(content, status.value, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Makes `app` answer every error with a problem document."""
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(InvalidInputError, _invalid)
    app.add_exception_handler(RequestValidationError, _wrong_parameter)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(SQLAlchemyError, _store_unavailable)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return problem_response(error.status, [error.fault], error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidInputError)
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, error.faults)


async def _wrong_parameter(request: Request, error: Exception) -> Response:
    """A parameter of the address or of a header; its name stands in the pointer. Bodies are read elsewhere."""
    assert isinstance(error, RequestValidationError)
    faults = [Fault("wrong_parameter", line["msg"], f"/{line['loc'][1]}") for line in error.errors()]
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, faults)


async def _http(request: Request, error: Exception) -> Response:
    """Starlette's own: no such route, no such method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    said = "there is nothing here; /openapi.json lists what there is" if status == HTTPStatus.NOT_FOUND else None
    path = request.url.path
    shown = path if len(path) <= MOST_SHOWN else f"{path[:MOST_SHOWN]}…"
    detail = f"{request.method} {shown}: {said or status.description or status.phrase}"
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
    return problem_response(status, [Fault(status.name.lower(), detail)], headers)


def _allowed(request: Request) -> list[str]:
    """The methods of the address, each of which is a route of its own."""
    routes = request.app.router.routes
    return [
        method.value
        for method in HTTPMethod
        if any(route.matches({**request.scope, "method": method.value})[0] == Match.FULL for route in routes)
    ]


async def _store_unavailable(request: Request, error: Exception) -> Response:
    assert isinstance(error, SQLAlchemyError)
    log.error("the store does not answer: %s", brief(error))
    fault = Fault("store_unavailable", "the service cannot reach its store; try again later")
    return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, [fault], {"Retry-After": "5"})


async def _unexpected(request: Request, error: Exception) -> Response:
    """The traceback goes to the log (the server writes it), never to the client."""
    fault = Fault("internal_error", "the service met an error of its own; its log says which")
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, [fault])
