"""`/livez`: the process runs. `/readyz`: it can take work. `/metrics`: what it has done."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from bapipe_api.access import needs
from bapipe_api.dependencies import ServiceDep
from bapipe_api.migrate import current, head
from bapipe_api.openapi import problems
from bapipe_api.problems import RefusedError
from bapipe_api.resources import Health

router = APIRouter(tags=["health"])


@router.get("/livez", summary="The process runs", responses=problems())
async def livez() -> Health:
    return Health(status="alive")


@router.get("/readyz", summary="Jobs can be stored and done", responses=problems(503))
def readyz(service: ServiceDep) -> Health:
    """The store can be written, its tables are those of this release, and somebody is there to do the work."""
    service.store.check()
    revision = current(service.database)
    if revision != head():
        raise _not_ready("store_outdated", f"the store is at revision {revision}, not {head()}; run bapipe migrate")
    fault = service.engine.fault()
    if fault is not None:
        raise _not_ready("store_unavailable" if "store" in fault else "no_worker", fault)
    return Health(status="ready")


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(401, 403, 503)},
    dependencies=[Depends(needs("metrics"))],
)
def metrics(service: ServiceDep) -> Response:
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _not_ready(code: str, detail: str) -> RefusedError:
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, code, detail, {"Retry-After": "5"})
