"""The parts of the OpenAPI document that routes cannot say with types alone: raw JSON bodies, headers, problems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from bapipe.emulation import EmulationOptions
from bapipe_api.examples import EMULATION_EXAMPLES, PLAN_REQUEST_EXAMPLES, SIMULATION_EXAMPLES
from bapipe_api.problems import MEDIA_TYPE, Problem

REASONS = {
    401: "There is no valid key.",
    403: "The key does not allow this.",
    404: "There is no such resource.",
    408: "The body arrived too slowly.",
    413: "The body is over the limit.",
    415: "The body is of a kind, or has a content coding, that is not taken here.",
    422: "The input is wrong: `errors` holds every fault, with its JSON pointer.",
    409: "The job is not in a state for this.",
    429: "As many of your jobs are unfinished as may be; `Retry-After` says when to try again.",
    503: "The service cannot take this now; `Retry-After` says when to try again.",
}

RETRY_AFTER = {"description": "seconds after which to try again", "schema": {"type": "integer", "minimum": 0}}
UNTIL_FINISHED = "as long as the job has not ended: seconds after which to read it again"
LOCATION = {"description": "where the answer is kept", "schema": {"type": "string"}}
CACHE = {"description": "whether the answer of an earlier job is this one's", "schema": {"enum": ["hit", "miss"]}}
ETAG = {"description": "a strong validator: the same bytes have the same one", "schema": {"type": "string"}}

DISPOSITION = {"description": "`attachment`, and what the file may be called", "schema": {"type": "string"}}
POLICY = {"description": "nothing but the scripts of the file itself is run", "schema": {"type": "string"}}
CHALLENGE = {"description": "which key is asked for (RFC 6750)", "schema": {"type": "string"}}

PLAN_REQUEST: dict[str, Any] = {
    "schema": {"$ref": "#/components/schemas/PlanRequest"},
    "examples": PLAN_REQUEST_EXAMPLES,
}
SIMULATION: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/Plan"}, "examples": SIMULATION_EXAMPLES}


def _whole(schema: Any, parts: dict[str, Any]) -> Any:
    """A JSON Schema without references to its own parts."""
    if isinstance(schema, list):
        return [_whole(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _whole(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _whole(value, parts) for key, value in schema.items() if key != "$defs"}


_OPTIONS = EmulationOptions.model_json_schema()
EMULATION: dict[str, Any] = {
    "schema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["plan"],
        "properties": {
            "plan": {"$ref": "#/components/schemas/Plan"},
            "options": _whole(_OPTIONS, _OPTIONS["$defs"]),
        },
    },
    "examples": EMULATION_EXAMPLES,
}

PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "RFC 7240: `wait=N` waits at most N seconds for the answer; without it there is one at once.",
    "schema": {"type": "string"},
    "example": "wait=60",
}

IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body is the same job, however often it is sent; with another, a 422.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "example": "8e03978e-40d5-43e8-bc93-6894a57f9324",
}

IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The entity tags (`ETag`) of what the client has: 304 when it is still the same.",
    "schema": {"type": "string"},
}

CACHE_CONTROL = {
    "name": "Cache-Control",
    "in": "header",
    "required": False,
    "description": "`no-cache`: do it again, though the same request was answered before.",
    "schema": {"type": "string"},
}


def submitted(resource: type[BaseModel], work: str) -> dict[int | str, dict[str, Any]]:
    """The answers to who asks for a job."""
    return {
        200: {
            "description": f"The {work} has ended: its answer, or why there is none.",
            "headers": {"Location": LOCATION, "Cache": CACHE, "ETag": ETAG},
        },
        202: {
            "description": f"The {work} goes on; read it at `Location`.",
            "headers": {"Location": LOCATION, "Cache": CACHE, "Retry-After": RETRY_AFTER},
            "model": resource,
        },
    }


def tagged(what: str, kinds: Iterable[str] = (), **headers: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """The answers of a route whose client may have them already; `kinds` are of those that are no type of ours."""
    content: dict[str, Any] = {"content": {kind: {"schema": {}} for kind in kinds}} if kinds else {}
    return {
        200: {"description": what, "headers": {"ETag": ETAG, **headers}, **content},
        304: {"description": "The client has it already (`If-None-Match`).", "headers": {"ETag": ETAG}},
    }


def file(what: str, *kinds: str) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that gives a file."""
    coding = {"description": "`gzip`, for who takes that", "schema": {"type": "string"}}
    vary = {"description": "`Accept-Encoding`", "schema": {"type": "string"}}
    return tagged(
        what,
        kinds,
        **{
            "Content-Disposition": DISPOSITION,
            "Content-Security-Policy": POLICY,
            "Content-Encoding": coding,
            "Vary": vary,
        },
    )


STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            "Cache-Control": {"description": "`no-store`", "schema": {"type": "string"}},
            "X-Accel-Buffering": {
                "description": "`no`: events are not held up on the way",
                "schema": {"type": "string"},
            },
        },
        "description": "Events, each with the state, the phase and, of a search, in seconds of the objective, the best "
        "plan so far (`incumbent_s`), what no plan can beat (`lower_bound_s`), and the `gap` between them.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string", "description": "the number of the event"},
                        "event": {"enum": ["progress", "end"]},
                        "data": {"type": "string", "contentMediaType": "application/json"},
                        "retry": {"type": ["string", "integer"]},
                    },
                }
            }
        },
    },
    204: {"description": "The last event was received before: there will be no more."},
}

ANY_FILE = ("application/json", "text/plain", "application/octet-stream")
"""The kinds of a body whose format is found by its content."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route; whatever else goes wrong is a problem document too."""
    documented: dict[int | str, dict[str, Any]] = {status: _problem(REASONS[status]) for status in statuses}
    for status in {429, 503} & documented.keys():
        documented[status]["headers"] = {"Retry-After": RETRY_AFTER}
    for status in {401, 403} & documented.keys():
        documented[status]["headers"] = {"WWW-Authenticate": CHALLENGE}
    documented["default"] = _problem("Anything else that goes wrong.")
    return documented


def with_body(
    content: dict[str, Any], *parameters: dict[str, Any], kinds: tuple[str, ...] = ("application/json",)
) -> dict[str, Any]:
    """A body that the route parses itself, so that its faults are the same as those of the Python API."""
    return {
        "requestBody": {"required": True, "content": dict.fromkeys(kinds, content)},
        "parameters": list(parameters),
    }


def _problem(reason: str) -> dict[str, Any]:
    return {
        "description": reason,
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}},
    }
