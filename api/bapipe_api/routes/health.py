"""`/livez`: the process runs. `/readyz`: it can take work."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from bapipe_api.dependencies import EngineDep, StoreDep
from bapipe_api.openapi import problems
from bapipe_api.problems import RefusedError
from bapipe_api.resources import Health

router = APIRouter(tags=["health"])


@router.get("/livez", summary="The process runs", responses=problems())
async def livez() -> Health:
    return Health(status="alive")


@router.get("/readyz", summary="The store can be read and written", responses=problems(503))
def readyz(store: StoreDep, engine: EngineDep) -> Health:
    store.check()
    if not engine.all_saved():
        detail = "results wait in memory until the store takes them; the service's log says why"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable", detail, {"Retry-After": "5"})
    return Health(status="ready")
