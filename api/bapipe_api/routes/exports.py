"""`/v1/plans/{id}/exports/{format}` and the same of simulations: a plan as files."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from bapipe.exports import EXPORTS
from bapipe.replays import exported
from bapipe_api.access import Reader
from bapipe_api.collection import PLANS, Collection
from bapipe_api.dependencies import PlacesDep, ServiceDep, SettingsDep
from bapipe_api.files import attachment, made
from bapipe_api.finding import JobId, find
from bapipe_api.openapi import IF_NONE_MATCH, file, problems

FormatName = Literal["json", "html", "csv", "trace"]
FORMATS = "; ".join(f"`{name}`: {export.about}" for name, export in EXPORTS.items())
FILES = file("The file.", *(export.media_type.partition(";")[0] for export in EXPORTS.values()))


def export_router(jobs: Collection) -> APIRouter:
    """The files of one kind of job: of a plan that was found, or that was to be simulated."""
    router = APIRouter(prefix=jobs.path, tags=[f"{jobs.kind}s"])

    @router.get(
        "/{id}/exports/{format}",
        name=f"export_{jobs.kind}",
        summary=f"The plan of {jobs.one} as a file" if jobs is not PLANS else "A plan as a file",
        response_class=Response,
        responses={**FILES, **problems(401, 403, 404, 409, 422, 503)},
        openapi_extra={"parameters": [IF_NONE_MATCH]},
    )
    async def export_job(
        request: Request,
        job_id: JobId,
        format: Annotated[FormatName, Path(description=FORMATS)],  # noqa: A002  the word of the address
        caller: Reader,
        service: ServiceDep,
        settings: SettingsDep,
        places: PlacesDep,
    ) -> Response:
        """The plan in one of the formats that it can be written in."""
        record = await run_in_threadpool(find, service, jobs.kind, job_id, caller.owner)
        export = EXPORTS[format]
        content = await made(request, record, partial(exported, format), service, settings, places)
        return attachment(request, content, export.media_type, f"{jobs.kind}-{record.id[:8]}.{export.extension}")

    return router
