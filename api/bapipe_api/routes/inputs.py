"""`/v1/profiles:import` and `/v1/plans:validate`: what is asked is read and checked, nothing is searched or kept."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from bapipe.faults import MAX_COUNT
from bapipe.formats import FORMATS, parse_profile
from bapipe.planner import validate
from bapipe.problem import ModelProfile
from bapipe_api.access import needs
from bapipe_api.bodies import JsonBody, TextBody
from bapipe_api.dependencies import PlacesDep, ServiceDep, SettingsDep
from bapipe_api.limits import check_size, read_request
from bapipe_api.openapi import ANY_FILE, PLAN_REQUEST, problems, with_body
from bapipe_api.reading import canonical, read_body
from bapipe_api.resources import Validation
from bapipe_api.settings import Settings

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
    response_model=Validation,
    responses=problems(401, 403, 408, 413, 415, 422, 503),
    openapi_extra=with_body(PLAN_REQUEST),
)
async def validate_request(
    request: Request, body: JsonBody, settings: SettingsDep, service: ServiceDep, places: PlacesDep
) -> Response:
    """Says what a plan would assume; refuses, with every fault, what `POST /v1/plans` would refuse."""
    found = await read_body(request, body, canonical(_validated, settings), service, places)
    return Response(found, media_type="application/json")


@router.post(
    "/v1/profiles:import",
    summary="Read a profile of any known format",
    response_model=ModelProfile,
    responses=problems(401, 403, 408, 413, 415, 422, 503),
    openapi_extra=with_body({}, kinds=ANY_FILE),
)
async def import_profile(
    request: Request,
    body: TextBody,
    service: ServiceDep,
    places: PlacesDep,
    format: FormatQuery = None,  # noqa: A002  the word of the library
    profile_batch: BatchQuery = None,
    name: NameQuery = "profile",
) -> Response:
    """The profile in BaPipe's own form, to be put into a plan request."""
    read = partial(_profile, format, profile_batch, name)
    return Response(await read_body(request, body, read, service, places), media_type="application/json")


def _profile(form: str | None, profile_batch: int | None, name: str, body: bytes) -> str:
    check_size(body)
    return parse_profile(body, format=form, profile_batch=profile_batch, name=name).model_dump_json()


def _validated(body: bytes, settings: Settings) -> Validation:
    return Validation(assumptions=validate(read_request(body, settings)))
