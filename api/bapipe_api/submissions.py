"""From a request to a job: the one that is there already, where that is right, or a new one."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from http import HTTPStatus

from fastapi import Request

from bapipe_api.cache import cache_key
from bapipe_api.dependencies import Service
from bapipe_api.kinds import Kind
from bapipe_api.problems import RefusedError
from bapipe_api.records import Record
from bapipe_api.states import State
from bapipe_api.store import BusyError, KeyReusedError, Submission, Submitted

KEY = re.compile(r"[\x21-\x7e]{1,255}")
RETRY_AFTER_S = 5


def unread(request: Request, kind: Kind, owner: str, body: bytes, service: Service) -> Submission:
    """What is asked for, as far as it is known without reading the body.

    Raises:
        RefusedError: 422 for an idempotency key that is none.
    """
    key = request.headers.get("idempotency-key")
    if key is not None and not KEY.fullmatch(key):
        detail = "an Idempotency-Key has 1 to 255 visible ASCII characters"
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "wrong_idempotency_key", detail)
    body_hash = hashlib.sha256(body).hexdigest()
    return Submission(
        owner=owner,
        kind=kind,
        request="",
        cache_key=service.known_bodies.key_of(kind, body_hash),
        idempotency_key=key,
        body_hash=body_hash,
        fresh="no-cache" in request.headers.get("cache-control", "").lower(),
    )


def answered(service: Service, submission: Submission) -> Submitted | None:
    """The job that is there already; None when there is none, or nobody knows without reading the body.

    Raises:
        RefusedError: 422 when the idempotency key was used otherwise.
    """
    if submission.cache_key is None:
        return None
    try:
        return service.store.answered(submission)
    except KeyReusedError:
        raise _key_reused() from None


def submit(service: Service, submission: Submission, request: str) -> Submitted:
    """Stores the job with what was read of its body, in canonical JSON, and has it begun as soon as it is its turn.

    Raises:
        RefusedError: 503 or 429 when no more jobs are taken now, 422 when the idempotency key was used otherwise.
    """
    key = cache_key(submission.kind, request)
    service.known_bodies.remember(submission.kind, submission.body_hash, key)
    try:
        submitted = service.store.submit(replace(submission, request=request, cache_key=key))
    except BusyError as error:
        status = HTTPStatus.TOO_MANY_REQUESTS if error.own else HTTPStatus.SERVICE_UNAVAILABLE
        raise RefusedError(status, "busy", str(error), {"Retry-After": str(RETRY_AFTER_S)}) from None
    except KeyReusedError:
        raise _key_reused() from None
    if submitted.origin == "new":
        service.engine.announce(submitted.record.id)
        service.metrics.count(submission.kind, State.QUEUED)
    return submitted


def cancel(service: Service, record: Record) -> None:
    """Ends a job, whoever asks for that: now if it waits, in a moment if it runs, not at all if it has ended."""
    service.metrics.count(record.kind, service.store.cancel(record.id))


def _key_reused() -> RefusedError:
    detail = "this Idempotency-Key came with another body before; use a new one"
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
