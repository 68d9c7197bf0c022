"""`/v1/presets/devices` and `/v1/presets/clusters`: what comes with BaPipe."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, Depends, Request, Response
from pydantic import TypeAdapter

from bapipe.presets import clusters, device_kinds
from bapipe.problem import Cluster, DeviceKind
from bapipe_api.access import needs
from bapipe_api.openapi import NOT_MODIFIED, problems
from bapipe_api.resources import tagged_response

router = APIRouter(prefix="/v1/presets", tags=["presets"], dependencies=[Depends(needs("read"))])

MAX_AGE = {"Cache-Control": "max-age=3600"}


@router.get(
    "/devices",
    summary="Kinds of devices",
    response_model=dict[str, DeviceKind],
    responses={**NOT_MODIFIED, **problems(401, 403, 503)},
)
async def list_devices(request: Request) -> Response:
    """Every kind by its name, each figure with its source."""
    return tagged_response(request, _devices(), "application/json", MAX_AGE)


@router.get(
    "/clusters",
    summary="Example clusters",
    response_model=dict[str, Cluster],
    responses={**NOT_MODIFIED, **problems(401, 403, 503)},
)
async def list_clusters(request: Request) -> Response:
    """Every example by its name, as a plan request takes it."""
    return tagged_response(request, _clusters(), "application/json", MAX_AGE)


@cache
def _devices() -> bytes:
    return TypeAdapter(dict[str, DeviceKind]).dump_json(device_kinds())


@cache
def _clusters() -> bytes:
    return TypeAdapter(dict[str, Cluster]).dump_json(clusters())
