"""`/v1/emulations`: a step of a plan on its FPGAs, with faults on request."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Depends, Response

from bapipe.emulation import EmulationReport
from bapipe.emulation.emulate import emulate
from bapipe_api.access import needs
from bapipe_api.bodies import JsonBody
from bapipe_api.dependencies import ReadersDep, SettingsDep
from bapipe_api.limits import read_emulation
from bapipe_api.openapi import EMULATION, problems, with_body
from bapipe_api.settings import Settings

router = APIRouter(prefix="/v1/emulations", tags=["emulations"], dependencies=[Depends(needs("write"))])


@router.post(
    "",
    summary="Emulate a plan on its FPGAs",
    response_model=EmulationReport,
    responses=problems(401, 403, 408, 413, 415, 422),
    openapi_extra=with_body(EMULATION),
)
async def create_emulation(body: JsonBody, settings: SettingsDep, readers: ReadersDep) -> Response:
    """Replays one step of the plan part by part, with finite FIFOs, shared memory ports and the faults asked for.

    Refuses a plan whose devices are no FPGAs, or whose layers do not say what they compute.
    """
    content = await to_thread.run_sync(_emulation, body, settings, limiter=readers)
    return Response(content, media_type="application/json")


def _emulation(body: bytes, settings: Settings) -> str:
    asked = read_emulation(body, settings)
    return emulate(asked.plan, asked.options).report.model_dump_json()
