"""`/v1/profiles:import` and `/v1/plans:validate`: what is asked is read and checked, nothing is searched or kept."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Response

from bapipe.faults import MAX_COUNT
from bapipe.formats import FORMATS, parse_profile
from bapipe.planner import validate
from bapipe.problem import ModelProfile
from bapipe_api.access import needs
from bapipe_api.bodies import JsonBody, TextBody
from bapipe_api.dependencies import ReadersDep, SettingsDep
from bapipe_api.limits import check_size, read_request
from bapipe_api.openapi import ANY_FILE, PLAN_REQUEST, problems, with_body
from bapipe_api.resources import Validation

router = APIRouter(tags=["inputs"], dependencies=[Depends(needs("write"))])

FormatQuery = Annotated[
    str | None, Query(description=f"one of {', '.join(FORMATS)}; without it the content tells", examples=["pipedream"])
]
BatchQuery = Annotated[
    int | None, Query(ge=1, le=MAX_COUNT, description="samples that the file's times are for, where it does not say")
]
NameQuery = Annotated[str, Query(max_length=200, description="what the model is called, where the file does not say")]


@router.post(
    "/v1/plans:validate",
    summary="Check a plan request",
    responses=problems(401, 403, 408, 413, 415, 422),
    openapi_extra=with_body(PLAN_REQUEST),
)
async def validate_request(body: JsonBody, settings: SettingsDep, readers: ReadersDep) -> Validation:
    """Says what a plan would assume; refuses, with every fault, what `POST /v1/plans` would refuse."""
    return await to_thread.run_sync(_validated, body, settings, limiter=readers)


@router.post(
    "/v1/profiles:import",
    summary="Read a profile of any known format",
    response_model=ModelProfile,
    responses=problems(401, 403, 408, 413, 415, 422),
    openapi_extra=with_body({}, kinds=ANY_FILE),
)
async def import_profile(
    body: TextBody,
    settings: SettingsDep,
    readers: ReadersDep,
    format: FormatQuery = None,  # noqa: A002  the word of the library
    profile_batch: BatchQuery = None,
    name: NameQuery = "profile",
) -> Response:
    """The profile in BaPipe's own form, to be put into a plan request."""

    def read() -> bytes:
        check_size(body)
        profile = parse_profile(body, format=format, profile_batch=profile_batch, name=name)
        return profile.model_dump_json().encode()

    return Response(await to_thread.run_sync(read, limiter=readers), media_type="application/json")


def _validated(body: bytes, settings: SettingsDep) -> Validation:
    return Validation(assumptions=validate(read_request(body, settings)))
