"""`/v1/plans/{plan_id}/trace` and `…/exports/{format}`: a plan as files."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from bapipe.exports import EXPORTS, Export
from bapipe_api.access import Reader
from bapipe_api.dependencies import ReadersDep, ServiceDep, SettingsDep
from bapipe_api.limits import read_plan
from bapipe_api.openapi import NOT_MODIFIED, problems
from bapipe_api.problems import RefusedError
from bapipe_api.records import Record
from bapipe_api.resources import tagged_response
from bapipe_api.routes.plans import PlanId, find
from bapipe_api.settings import Settings

router = APIRouter(prefix="/v1/plans", tags=["plans"])

FormatName = Literal["json", "html", "csv", "trace"]
FORMATS = "; ".join(f"`{name}`: {export.about}" for name, export in EXPORTS.items())
FILES = {
    200: {
        "description": "The file.",
        "content": {export.media_type.partition(";")[0]: {"schema": {}} for export in EXPORTS.values()},
    },
    **NOT_MODIFIED,
}
TRACE = {200: {"description": "The trace.", "content": {"application/json": {"schema": {}}}}, **NOT_MODIFIED}


@router.get(
    "/{plan_id}/trace",
    summary="A plan's step as a trace",
    response_class=Response,
    responses={**TRACE, **problems(401, 403, 404, 409, 422, 503)},
)
async def plan_trace(
    request: Request,
    plan_id: PlanId,
    caller: Reader,
    service: ServiceDep,
    settings: SettingsDep,
    readers: ReadersDep,
) -> Response:
    """The simulated step in the Trace Event Format, for Perfetto or chrome://tracing."""
    record = await run_in_threadpool(find, service, plan_id, caller.owner)
    content = await to_thread.run_sync(_written, record, EXPORTS["trace"], settings, limiter=readers)
    return _file(request, content, EXPORTS["trace"], plan_id)


@router.get(
    "/{plan_id}/exports/{format}",
    summary="A plan as a file",
    response_class=Response,
    responses={**FILES, **problems(401, 403, 404, 409, 422, 503)},
)
async def export_plan(
    request: Request,
    plan_id: PlanId,
    format: Annotated[FormatName, Path(description=FORMATS)],  # noqa: A002  the word of the address
    caller: Reader,
    service: ServiceDep,
    settings: SettingsDep,
    readers: ReadersDep,
) -> Response:
    """The plan in one of the formats that it can be written in."""
    record = await run_in_threadpool(find, service, plan_id, caller.owner)
    content = await to_thread.run_sync(_written, record, EXPORTS[format], settings, limiter=readers)
    return _file(request, content, EXPORTS[format], plan_id)


def _written(record: Record, export: Export, settings: Settings) -> bytes:
    """The plan of `record` in a format.

    Raises:
        RefusedError: 409 when there is no plan, or none yet.
        InvalidInputError: the plan is longer than is simulated here.
    """
    if record.result is None:
        detail = f"the search is {record.state}: there is no plan" + ("" if record.finished else " yet")
        raise RefusedError(HTTPStatus.CONFLICT, "no_plan", detail)
    plan = read_plan(record.result.encode(), settings)
    if plan.schedule is None:
        raise RefusedError(HTTPStatus.CONFLICT, "no_plan", "nothing fits: there is no plan to be written")
    return export.write(plan).encode()


def _file(request: Request, content: bytes, export: Export, plan_id: str) -> Response:
    name = f"plan-{plan_id[:8]}.{export.extension}"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox allow-scripts",
    }
    return tagged_response(request, content, export.media_type, headers)
