"""`/v1/presets/…`: the device kinds, links, example clusters and example profiles that come with BaPipe."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from pydantic import TypeAdapter

from bapipe.examples import ExampleSummary, example_names, example_summaries, load_example
from bapipe.presets import clusters, device_kinds, links
from bapipe.problem import Cluster, DeviceKind, Link, ModelProfile
from bapipe_api.access import needs
from bapipe_api.dependencies import PlacesDep
from bapipe_api.openapi import IF_NONE_MATCH, problems, tagged
from bapipe_api.problems import RefusedError
from bapipe_api.resources import tagged_response

router = APIRouter(prefix="/v1/presets", tags=["presets"], dependencies=[Depends(needs("read"))])

MAX_AGE = {"Cache-Control": "max-age=3600"}
FOUND = "What comes with this release of the service."
CACHED = {"Cache-Control": {"description": "for how long it need not be asked again", "schema": {"type": "string"}}}


@router.get(
    "/devices",
    summary="Kinds of devices",
    response_model=dict[str, DeviceKind],
    responses={**tagged(FOUND, **CACHED), **problems(401, 403, 503)},
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def list_devices(request: Request) -> Response:
    """Every kind by its name, each figure with its source."""
    return tagged_response(request, _devices(), "application/json", MAX_AGE)


@router.get(
    "/links",
    summary="Links",
    response_model=dict[str, Link],
    responses={**tagged(FOUND, **CACHED), **problems(401, 403, 503)},
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def list_links(request: Request) -> Response:
    """Every link by its name, with the source of its figures."""
    return tagged_response(request, _links(), "application/json", MAX_AGE)


@router.get(
    "/clusters",
    summary="Example clusters",
    response_model=dict[str, Cluster],
    responses={**tagged(FOUND, **CACHED), **problems(401, 403, 503)},
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def list_clusters(request: Request) -> Response:
    """Every example by its name, as a plan request takes it."""
    return tagged_response(request, _clusters(), "application/json", MAX_AGE)


@router.get(
    "/profiles",
    summary="Example profiles",
    response_model=dict[str, ExampleSummary],
    responses={**tagged(FOUND, **CACHED), **problems(401, 403, 503)},
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def list_profiles(request: Request, places: PlacesDep) -> Response:
    """Every example by its name, in brief."""
    content = await to_thread.run_sync(_profiles, limiter=places.bodies)
    return tagged_response(request, content, "application/json", MAX_AGE)


@router.get(
    "/profiles/{name}",
    summary="An example profile",
    response_model=ModelProfile,
    responses={**tagged(FOUND, **CACHED), **problems(401, 403, 404, 503)},
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def get_profile(request: Request, name: str, places: PlacesDep) -> Response:
    """One of them in full, as a plan request takes it."""
    if name not in example_names():
        detail = f"there is no example profile of this name; there are {', '.join(sorted(example_names()))}"
        raise RefusedError(HTTPStatus.NOT_FOUND, "not_found", detail)
    content = await to_thread.run_sync(_profile, name, limiter=places.bodies)
    return tagged_response(request, content, "application/json", MAX_AGE)


@cache
def _devices() -> bytes:
    return TypeAdapter(dict[str, DeviceKind]).dump_json(device_kinds())


@cache
def _links() -> bytes:
    return TypeAdapter(dict[str, Link]).dump_json(links())


@cache
def _clusters() -> bytes:
    return TypeAdapter(dict[str, Cluster]).dump_json(clusters())


@cache
def _profiles() -> bytes:
    return TypeAdapter(dict[str, ExampleSummary]).dump_json(example_summaries())


@cache
def _profile(name: str) -> bytes:
    return load_example(name).model_dump_json().encode()
