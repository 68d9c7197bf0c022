"""`/v1/plans`: ask for a plan, and read one again."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from bapipe_api.bodies import JsonBody
from bapipe_api.dependencies import EngineDep, ReadersDep, SettingsDep, StoreDep
from bapipe_api.jobs import BusyError, Job, JobEngine
from bapipe_api.limits import read_request
from bapipe_api.openapi import PLAN_REQUEST, PREFER, SUBMITTED, problems, with_body
from bapipe_api.preferences import WaitSeconds
from bapipe_api.problems import RefusedError
from bapipe_api.resources import PlanResource, plan_response
from bapipe_api.store import Record, Store

router = APIRouter(prefix="/v1/plans", tags=["plans"])

PLAN_ID = re.compile(r"[0-9a-f]{32}")
POLL_AFTER_S = 1
RETRY_AFTER_S = 5


@router.post(
    "",
    summary="Search the best plan",
    response_model=PlanResource,
    responses={**SUBMITTED, **problems(408, 413, 415, 422, 503)},
    openapi_extra=with_body(PLAN_REQUEST, PREFER),
)
async def create_plan(
    request: Request,
    body: JsonBody,
    settings: SettingsDep,
    readers: ReadersDep,
    engine: EngineDep,
    wait_s: WaitSeconds,
) -> Response:
    """Searches a plan in a process of its own as soon as it is its turn, and keeps it at the address in `Location`.

    Answers 200 when the search ends while the request waits for it (`Prefer: wait=N`, seconds), 202 when it goes on.
    A client that leaves while it waits ends the search.
    """
    asked = await to_thread.run_sync(read_request, body, settings, limiter=readers)
    try:
        job = await run_in_threadpool(engine.submit, asked)
    except BusyError as error:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", str(error), headers) from None
    finished = await _finished(request, engine, job, wait_s)
    headers = {"Location": request.app.url_path_for("get_plan", plan_id=job.id)}
    if finished is None:
        headers["Retry-After"] = str(POLL_AFTER_S)
        return plan_response(job.record, HTTPStatus.ACCEPTED, headers)
    return await run_in_threadpool(plan_response, finished, HTTPStatus.OK, headers)


@router.get("/{plan_id}", summary="Read a plan", response_model=PlanResource, responses=problems(404))
def get_plan(
    plan_id: Annotated[str, Path(examples=["6f1b0b5e2f6f4e0c9d5a3b8f7c1d2e3f"])], engine: EngineDep, store: StoreDep
) -> Response:
    record = engine.unsaved(plan_id) or _find(store, plan_id)
    if record is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, "not_found", "there is no plan with this id")
    headers = {} if record.finished_at else {"Retry-After": str(POLL_AFTER_S)}
    return plan_response(record, HTTPStatus.OK, headers)


def _find(store: Store, plan_id: str) -> Record | None:
    return store.get(plan_id) if PLAN_ID.fullmatch(plan_id) else None


async def _finished(request: Request, engine: JobEngine, job: Job, wait_s: float) -> Record | None:
    """The job's last record, or None when it is not there after `wait_s` or the client has left (which cancels it)."""
    done = asyncio.wrap_future(job.done)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((done, gone), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            return done.result()
        if gone.done():
            await run_in_threadpool(engine.cancel, job)
        return None
    finally:
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
