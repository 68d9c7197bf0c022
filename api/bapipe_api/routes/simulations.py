"""`/v1/simulations`: what a plan costs, event by event."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter, Depends, Response

from bapipe.check import check
from bapipe.simulator import simulate
from bapipe_api.access import needs
from bapipe_api.bodies import JsonBody
from bapipe_api.dependencies import ReadersDep, SettingsDep
from bapipe_api.limits import read_plan
from bapipe_api.openapi import PLAN, problems, with_body
from bapipe_api.resources import SimulationResult, Timeline
from bapipe_api.settings import Settings

router = APIRouter(prefix="/v1/simulations", tags=["simulations"], dependencies=[Depends(needs("write"))])


@router.post(
    "",
    summary="Simulate a plan",
    response_model=SimulationResult,
    responses=problems(401, 403, 408, 413, 415, 422),
    openapi_extra=with_body(PLAN),
)
async def create_simulation(body: JsonBody, settings: SettingsDep, readers: ReadersDep) -> Response:
    """Replays one step of the plan, from its layers, devices and orders; the figures that it declares are not read.

    Refuses a plan that cannot be replayed. What else is wrong with it, such as too little memory or figures that are
    not the simulated ones, is in `faults`, with pointers into the plan.
    """
    content = await to_thread.run_sync(_simulation, body, settings, limiter=readers)
    return Response(content, media_type="application/json")


def _simulation(body: bytes, settings: Settings) -> str:
    plan = read_plan(body, settings)
    simulation = simulate(plan)
    result = SimulationResult(
        prediction=simulation.prediction(plan.request),
        timeline=Timeline(
            devices=simulation.devices,
            operations=simulation.operations,
            transfers=simulation.transfers,
            reductions=simulation.reductions,
            optimizer_start_s=simulation.optimizer_start_s,
            optimizer_end_s=simulation.optimizer_end_s,
        ),
        faults=tuple(check(plan)),
    )
    return result.model_dump_json()
