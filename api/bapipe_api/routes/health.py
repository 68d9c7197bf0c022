"""`/livez`: the process runs. `/readyz`: it can take work."""

from __future__ import annotations

from fastapi import APIRouter

from bapipe_api.dependencies import StoreDep
from bapipe_api.openapi import problems
from bapipe_api.resources import Health

router = APIRouter(tags=["health"])


@router.get("/livez", summary="The process runs", responses=problems())
async def livez() -> Health:
    return Health(status="alive")


@router.get("/readyz", summary="The store can be reached", responses=problems(503))
def readyz(store: StoreDep) -> Health:
    store.check()
    return Health(status="ready")
