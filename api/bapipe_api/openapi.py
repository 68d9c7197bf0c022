"""The parts of the OpenAPI document that routes cannot say with types alone: raw JSON bodies, headers, problems."""

from __future__ import annotations

from typing import Any

from bapipe_api.examples import PLAN_REQUEST_EXAMPLES
from bapipe_api.problems import MEDIA_TYPE, Problem

REASONS = {
    404: "There is no such resource.",
    408: "The body arrived too slowly.",
    413: "The body is over the limit.",
    415: "The body is not plain application/json.",
    422: "The input is wrong: `errors` holds every fault, with its JSON pointer.",
    503: "The service cannot take this now; `Retry-After` says when to try again.",
}

RETRY_AFTER = {"description": "seconds after which to try again", "schema": {"type": "integer", "minimum": 0}}
LOCATION = {"description": "where the plan is kept", "schema": {"type": "string"}}

PLAN_REQUEST: dict[str, Any] = {
    "schema": {"$ref": "#/components/schemas/PlanRequest"},
    "examples": PLAN_REQUEST_EXAMPLES,
}
PLAN: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/Plan"}}

PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "RFC 7240: `wait=N` waits at most N seconds for the plan, `respond-async` not at all.",
    "schema": {"type": "string"},
    "example": "wait=60",
}

SUBMITTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The search has ended: its plan, or why there is none.", "headers": {"Location": LOCATION}},
    202: {
        "description": "The search goes on; read it at `Location`.",
        "headers": {"Location": LOCATION, "Retry-After": RETRY_AFTER},
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PlanResource"}}},
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route; whatever else goes wrong is a problem document too."""
    documented: dict[int | str, dict[str, Any]] = {status: _problem(REASONS[status]) for status in statuses}
    if 503 in documented:
        documented[503]["headers"] = {"Retry-After": RETRY_AFTER}
    documented["default"] = _problem("Anything else that goes wrong.")
    return documented


def with_body(content: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    """A JSON body that the route parses itself, so that its faults are the same as those of the Python API."""
    return {
        "requestBody": {"required": True, "content": {"application/json": content}},
        "parameters": list(parameters),
    }


def _problem(reason: str) -> dict[str, Any]:
    return {
        "description": reason,
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}},
    }
