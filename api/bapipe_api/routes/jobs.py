"""`/v1/plans`, `/v1/simulations`, `/v1/emulations`: ask for a job, read, list, cancel, follow and draw it."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from bapipe.exports import EXPORTS
from bapipe_api.access import Reader, Writer
from bapipe_api.bodies import JsonBody
from bapipe_api.collection import Collection
from bapipe_api.dependencies import PlacesDep, ServiceDep, SettingsDep, StoreDep
from bapipe_api.events import LastEvent, event_stream
from bapipe_api.files import attachment, made
from bapipe_api.finding import JobId, find
from bapipe_api.openapi import (
    CACHE_CONTROL,
    ETAG,
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    PREFER,
    RETRY_AFTER,
    STREAM,
    UNTIL_FINISHED,
    file,
    problems,
    submitted,
    tagged,
    with_body,
)
from bapipe_api.preferences import WaitSeconds
from bapipe_api.problems import refuse
from bapipe_api.reading import canonical, read_body
from bapipe_api.resources import job_response, summary, tagged_job
from bapipe_api.states import State
from bapipe_api.store import PageTokenError
from bapipe_api.submissions import answered, cancel, submit, unread
from bapipe_api.waiting import ClientLeftError, until_finished

POLL_AFTER_S = 1


def job_router(jobs: Collection) -> APIRouter:
    """The routes of one kind of job."""
    router = APIRouter(prefix=jobs.path, tags=[f"{jobs.kind}s"])
    for add in (_add_create, _add_list, _add_read, _add_cancel, _add_events, _add_trace):
        add(router, jobs)
    return router


def _add_create(router: APIRouter, jobs: Collection) -> None:
    @router.post(
        "",
        name=f"create_{jobs.kind}",
        summary=jobs.asks,
        description=f"{jobs.about} in a process of its own as soon as it is its turn, and kept at the address in "
        f"`Location`. Answers 202 at once, or 200 when the {jobs.work} ends while the request waits for it "
        "(`Prefer: wait=N`, seconds) or the same request was answered before (`Cache: hit`). A client that leaves "
        f"while it waits ends the {jobs.work}, unless it gave an `Idempotency-Key`, under which it may come back.",
        response_model=jobs.resource,
        responses={**submitted(jobs.resource, jobs.work), **problems(401, 403, 408, 413, 415, 422, 429, 503)},
        openapi_extra=with_body(jobs.body, PREFER, IDEMPOTENCY_KEY, CACHE_CONTROL),
    )
    async def create(
        request: Request,
        caller: Writer,
        body: JsonBody,
        settings: SettingsDep,
        places: PlacesDep,
        service: ServiceDep,
        wait_s: WaitSeconds,
    ) -> Response:
        asked = unread(request, jobs.kind, caller.owner, body, service)
        job = await run_in_threadpool(answered, service, asked)
        if job is None:
            content = await read_body(request, body, canonical(jobs.read, settings), service, places)
            job = await run_in_threadpool(submit, service, asked, content)
        try:
            record = await until_finished(request, service, job.record, wait_s)
        except ClientLeftError:
            record = job.record
            if job.origin == "new" and asked.idempotency_key is None:
                await run_in_threadpool(cancel, service, record)
        headers = {"Location": f"{jobs.path}/{record.id}", "Cache": "hit" if job.origin == "cache" else "miss"}
        if record.finished:
            return await run_in_threadpool(job_response, record, HTTPStatus.OK, headers)
        return job_response(record, HTTPStatus.ACCEPTED, headers | {"Retry-After": str(POLL_AFTER_S)})


def _add_list(router: APIRouter, jobs: Collection) -> None:
    @router.get(
        "",
        name=f"list_{jobs.kind}s",
        summary=f"List {jobs.kind}s",
        description=f"The caller's {jobs.kind}s, newest first, without their answers. A token stays good while others "
        "come and go.",
        response_model=jobs.page,
        responses=problems(401, 403, 422, 503),
    )
    def list_jobs(
        caller: Reader,
        store: StoreDep,
        page_size: Annotated[int, Query(ge=1, le=500, description="how many a page has at most")] = 50,
        page_token: Annotated[str | None, Query(description="`next_page_token` of the page before")] = None,
        state: Annotated[list[State] | None, Query(description="only those in these states")] = None,
    ) -> BaseModel:
        try:
            page = store.list_page(caller.owner, jobs.kind, size=page_size, token=page_token, states=state or ())
        except PageTokenError as error:
            raise refuse("wrong_page_token", str(error), "/page_token") from None
        listed = [summary(record) for record in page.records]
        return jobs.page.model_validate({f"{jobs.kind}s": listed, "next_page_token": page.next_token})


def _add_read(router: APIRouter, jobs: Collection) -> None:
    @router.get(
        "/{id}",
        name=f"get_{jobs.kind}",
        summary=f"Read {jobs.one}",
        description=f"As it is now or, with `Prefer: wait=N`, as it is when the {jobs.work} has ended or N seconds are "
        "over.",
        response_model=jobs.resource,
        responses={
            **tagged("The job as it is.", **{"Retry-After": {**RETRY_AFTER, "description": UNTIL_FINISHED}}),
            **problems(401, 403, 404, 503),
        },
        openapi_extra={"parameters": [PREFER, IF_NONE_MATCH]},
    )
    async def get(
        request: Request, job_id: JobId, caller: Reader, service: ServiceDep, wait_s: WaitSeconds
    ) -> Response:
        record = await run_in_threadpool(find, service, jobs.kind, job_id, caller.owner)
        with suppress(ClientLeftError):
            record = await until_finished(request, service, record, wait_s)
        headers = {} if record.finished else {"Retry-After": str(POLL_AFTER_S)}
        return await run_in_threadpool(tagged_job, request, record, headers)


def _add_cancel(router: APIRouter, jobs: Collection) -> None:
    @router.delete(
        "/{id}",
        name=f"cancel_{jobs.kind}",
        summary=f"Cancel {jobs.one}",
        description=f"Ends the {jobs.work}; a plan that was found by then is kept. What has ended stays as it is, and "
        "is answered.",
        response_model=jobs.resource,
        responses={
            200: {"description": f"The {jobs.work} has ended.", "headers": {"ETag": ETAG}},
            202: {"description": f"The {jobs.work} is being ended.", "model": jobs.resource},
            **problems(401, 403, 404, 503),
        },
    )
    def delete(job_id: JobId, caller: Writer, service: ServiceDep) -> Response:
        record = find(service, jobs.kind, job_id, caller.owner)
        if not record.finished:
            cancel(service, record)
            record = find(service, jobs.kind, job_id, caller.owner)
        return job_response(record, HTTPStatus.OK if record.finished else HTTPStatus.ACCEPTED)


def _add_events(router: APIRouter, jobs: Collection) -> None:
    @router.get(
        "/{id}/events",
        name=f"{jobs.kind}_events",
        summary=f"Follow {jobs.one}",
        description="The newest event whenever there is one, at most one a second; the last one, of type `end`, at "
        "once. An event's `id` is its number among the events of the job. What lies between two that are sent is not "
        "sent later: each says all that is known.",
        response_class=Response,
        responses={**STREAM, **problems(401, 403, 404, 503)},
    )
    async def events(job_id: JobId, caller: Reader, service: ServiceDep, after: LastEvent) -> Response:
        record = await run_in_threadpool(find, service, jobs.kind, job_id, caller.owner)
        after = after if after <= record.last_event else 0  # what is no event of this job says nothing
        if record.finished and after == record.last_event:
            return Response(None, HTTPStatus.NO_CONTENT)
        stream = event_stream(service.store, service.watcher, record.id, after)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")


def _add_trace(router: APIRouter, jobs: Collection) -> None:
    @router.get(
        "/{id}/trace",
        name=f"{jobs.kind}_trace",
        summary=f"The step of {jobs.one} as a trace",
        description="The replayed step in the Trace Event Format, for Perfetto or chrome://tracing.",
        response_class=Response,
        responses={**file("The trace.", "application/json"), **problems(401, 403, 404, 409, 422, 503)},
        openapi_extra={"parameters": [IF_NONE_MATCH]},
    )
    async def trace(
        request: Request,
        job_id: JobId,
        caller: Reader,
        service: ServiceDep,
        settings: SettingsDep,
        places: PlacesDep,
    ) -> Response:
        record = await run_in_threadpool(find, service, jobs.kind, job_id, caller.owner)
        content = await made(request, record, jobs.trace, service, settings, places)
        form = EXPORTS["trace"]
        return attachment(request, content, form.media_type, f"{jobs.kind}-{record.id[:8]}.{form.extension}")
