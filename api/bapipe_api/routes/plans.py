"""`/v1/plans`: ask for a plan, read it, list them, cancel its search."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from bapipe_api.access import Reader, Writer
from bapipe_api.bodies import JsonBody
from bapipe_api.cache import cache_key
from bapipe_api.dependencies import ReadersDep, Service, ServiceDep, SettingsDep, StoreDep
from bapipe_api.limits import read_request
from bapipe_api.openapi import CACHE_CONTROL, IDEMPOTENCY_KEY, PLAN_REQUEST, PREFER, SUBMITTED, problems, with_body
from bapipe_api.preferences import WaitSeconds
from bapipe_api.problems import RefusedError, refuse
from bapipe_api.records import Record
from bapipe_api.resources import PlanPage, PlanResource, plan_document, plan_response, summary, tagged_response
from bapipe_api.settings import Settings
from bapipe_api.states import State
from bapipe_api.store import BusyError, KeyReusedError, PageTokenError, Submission, Submitted
from bapipe_api.waiting import ClientLeftError, until_finished

router = APIRouter(prefix="/v1/plans", tags=["plans"])

KIND = "plan"
PLAN_ID = re.compile(r"[0-9a-f]{32}")
KEY = re.compile(r"[\x21-\x7e]{1,255}")
POLL_AFTER_S = 1
RETRY_AFTER_S = 5

PlanId = Annotated[str, Path(examples=["6f1b0b5e2f6f4e0c9d5a3b8f7c1d2e3f"])]


@router.post(
    "",
    summary="Search the best plan",
    response_model=PlanResource,
    responses={**SUBMITTED, **problems(401, 403, 408, 413, 415, 422, 429, 503)},
    openapi_extra=with_body(PLAN_REQUEST, PREFER, IDEMPOTENCY_KEY, CACHE_CONTROL),
)
async def create_plan(
    request: Request,
    caller: Writer,
    body: JsonBody,
    settings: SettingsDep,
    readers: ReadersDep,
    service: ServiceDep,
    wait_s: WaitSeconds,
) -> Response:
    """Searches a plan in a process of its own as soon as it is its turn, and keeps it at the address in `Location`.

    Answers 202 at once, or 200 when the search ends while the request waits for it (`Prefer: wait=N`, seconds) or the
    same request was answered before (`Cache: hit`). A client that leaves while it waits ends the search, unless it gave
    an `Idempotency-Key`, under which it may come back.
    """
    submission = _unread(request, caller.owner, body, service)
    submitted = await run_in_threadpool(_answered, service, submission) if submission.cache_key else None
    if submitted is None:
        submission = await to_thread.run_sync(_read, submission, body, settings, service, limiter=readers)
        submitted = await run_in_threadpool(_submit, service, submission)
    try:
        record = await until_finished(request, service, submitted.record, wait_s)
    except ClientLeftError:
        if submitted.origin == "new" and submission.idempotency_key is None:
            await run_in_threadpool(service.store.cancel, submitted.record.id)
        record = submitted.record
    headers = {
        "Location": request.app.url_path_for("get_plan", plan_id=record.id),
        "Cache": "hit" if submitted.origin == "cache" else "miss",
    }
    if record.finished:
        return plan_response(record, HTTPStatus.OK, headers)
    return plan_response(record, HTTPStatus.ACCEPTED, headers | {"Retry-After": str(POLL_AFTER_S)})


@router.get(
    "",
    summary="List plans",
    response_model=PlanPage,
    responses=problems(401, 403, 422, 503),
)
def list_plans(
    caller: Reader,
    store: StoreDep,
    page_size: Annotated[int, Query(ge=1, le=500, description="how many plans a page has at most")] = 50,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before")] = None,
    state: Annotated[list[State] | None, Query(description="only plans in these states")] = None,
) -> PlanPage:
    """The caller's plans, newest first, without the plans themselves. A token stays good while plans come and go."""
    try:
        page = store.list_page(caller.owner, KIND, size=page_size, token=page_token, states=state or ())
    except PageTokenError as error:
        raise refuse("wrong_page_token", str(error), "/page_token") from None
    return PlanPage.model_validate(
        {"plans": [summary(record) for record in page.records], "next_page_token": page.next_token}
    )


@router.get(
    "/{plan_id}",
    summary="Read a plan",
    response_model=PlanResource,
    responses={304: {"description": "The client has it already."}, **problems(401, 403, 404, 503)},
    openapi_extra={"parameters": [PREFER]},
)
async def get_plan(
    request: Request, plan_id: PlanId, caller: Reader, service: ServiceDep, wait_s: WaitSeconds
) -> Response:
    """The plan as it is now, or, with `Prefer: wait=N`, as it is when the search has ended or N seconds are over."""
    record = await run_in_threadpool(find, service, plan_id, caller.owner)
    with suppress(ClientLeftError):
        record = await until_finished(request, service, record, wait_s)
    headers = {} if record.finished else {"Retry-After": str(POLL_AFTER_S)}
    return tagged_response(request, plan_document(record).encode(), "application/json", headers)


@router.delete(
    "/{plan_id}",
    summary="Cancel a search",
    response_model=PlanResource,
    responses={
        202: {"description": "The search is being ended.", "model": PlanResource},
        **problems(401, 403, 404, 503),
    },
)
def cancel_plan(plan_id: PlanId, caller: Writer, service: ServiceDep) -> Response:
    """Ends the search. The best plan found by then is kept. A search that has ended stays as it is, and is answered."""
    record = find(service, plan_id, caller.owner)
    if not record.finished:
        service.store.cancel(plan_id)
        record = find(service, plan_id, caller.owner)
        if record.state == State.CANCELLED:
            service.metrics.count(record.state)
    return plan_response(record, HTTPStatus.OK if record.finished else HTTPStatus.ACCEPTED)


def find(service: Service, plan_id: str, owner: str) -> Record:
    """The plan of `owner`.

    Raises:
        RefusedError: 404 when there is none; another's plan is not told from one that is not there.
    """
    record = service.store.get(plan_id, owner, KIND) if PLAN_ID.fullmatch(plan_id) else None
    if record is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, "not_found", "there is no plan with this id")
    return service.engine.overlay(record)


def _answered(service: Service, submission: Submission) -> Submitted | None:
    """The job that is there already.

    Raises:
        RefusedError: 422 when the idempotency key was used otherwise.
    """
    try:
        return service.store.answered(submission)
    except KeyReusedError:
        raise _key_reused() from None


def _submit(service: Service, submission: Submission) -> Submitted:
    """Stores the job, and has it begun as soon as it is its turn.

    Raises:
        RefusedError: 503 or 429 when no more jobs are taken now, 422 when the idempotency key was used otherwise.
    """
    try:
        submitted = service.store.submit(submission)
    except BusyError as error:
        status = HTTPStatus.TOO_MANY_REQUESTS if error.own else HTTPStatus.SERVICE_UNAVAILABLE
        raise RefusedError(status, "busy", str(error), {"Retry-After": str(RETRY_AFTER_S)}) from None
    except KeyReusedError:
        raise _key_reused() from None
    if submitted.origin == "new":
        service.engine.announce(submitted.record.id)
        service.metrics.count(State.QUEUED)
    return submitted


def _key_reused() -> RefusedError:
    detail = "this Idempotency-Key came with another body before; use a new one"
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)


def _unread(request: Request, owner: str, body: bytes, service: Service) -> Submission:
    """What is asked for, as far as it is known without reading the body."""
    key = request.headers.get("idempotency-key")
    if key is not None and not KEY.fullmatch(key):
        detail = "an Idempotency-Key has 1 to 255 visible ASCII characters"
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "wrong_idempotency_key", detail)
    body_hash = hashlib.sha256(body).hexdigest()
    return Submission(
        owner=owner,
        kind=KIND,
        request="",
        cache_key=service.known_bodies.key_of(body_hash),
        idempotency_key=key,
        body_hash=body_hash,
        fresh="no-cache" in request.headers.get("cache-control", "").lower(),
    )


def _read(submission: Submission, body: bytes, settings: Settings, service: Service) -> Submission:
    """The submission with its request in canonical form: equal requests have equal keys, however they were written."""
    canonical = read_request(body, settings).model_dump_json()
    key = cache_key(KIND, canonical)
    service.known_bodies.remember(submission.body_hash, key)
    return replace(submission, request=canonical, cache_key=key)
